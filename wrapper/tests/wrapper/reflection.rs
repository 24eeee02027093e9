//! Server reflection, with a client that is generated from the definition of the protocol.

use std::collections::BTreeMap;

use grit_proto::reflection::{
    ErrorResponse, ExtensionRequest, ServerReflectionRequest, ServerReflectionResponse,
    server_reflection_client::ServerReflectionClient, server_reflection_request::MessageRequest,
    server_reflection_response::MessageResponse,
};
use prost::Message;
use prost_types::FileDescriptorProto;
use tonic::{Code, Request, codegen::http::uri::PathAndQuery, transport::Channel};

use crate::support::{Start, Wrapper, unix_channel};

async fn wrapper() -> (Wrapper, Channel) {
    let wrapper = Start::new().child(&[]);
    drop(wrapper.client().await);
    let channel = unix_channel(&wrapper.path("w.sock")).await.unwrap();
    (wrapper, channel)
}

fn question(question: MessageRequest) -> ServerReflectionRequest {
    ServerReflectionRequest { host: "h".to_owned(), message_request: Some(question) }
}

/// Sends all requests over one stream.
async fn ask(channel: &Channel, questions: Vec<ServerReflectionRequest>) -> Vec<MessageResponse> {
    let mut client = ServerReflectionClient::new(channel.clone());
    let requests = questions.clone();
    let mut stream = client.server_reflection_info(tokio_stream::iter(questions)).await.unwrap().into_inner();
    let mut answers = Vec::new();
    for question in requests {
        let answer = stream.message().await.unwrap().unwrap();
        assert_eq!(answer.original_request, Some(question));
        answers.push(answer.message_response.unwrap());
    }
    assert_eq!(stream.message().await.unwrap(), None);
    answers
}

fn file(answer: &MessageResponse) -> FileDescriptorProto {
    let MessageResponse::FileDescriptorResponse(files) = answer else { panic!("{answer:?}") };
    FileDescriptorProto::decode(files.file_descriptor_proto[0].as_slice()).unwrap()
}

fn services(answer: &MessageResponse) -> Vec<String> {
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    list.service.iter().map(|service| service.name.clone()).collect()
}

/// The requests of grpcurl: the list, the file of each service, and the imports of these files.
#[tokio::test]
async fn reflection_lists_all_services_and_files() {
    let (_wrapper, channel) = wrapper().await;
    let listed = ask(&channel, vec![question(MessageRequest::ListServices(String::new()))]).await;
    let listed = services(&listed[0]);
    for name in [
        "gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper",
        "grit.wrapper.v1.Wrapper",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ] {
        assert!(listed.iter().any(|found| found == name), "{name} is not in {listed:?}");
    }
    let symbols = listed.iter().map(|name| question(MessageRequest::FileContainingSymbol(name.clone())));
    let mut waiting: Vec<_> = ask(&channel, symbols.collect()).await.iter().map(file).collect();
    let mut files = BTreeMap::new();
    while let Some(file) = waiting.pop() {
        for name in &file.dependency {
            let answer = ask(&channel, vec![question(MessageRequest::FileByFilename(name.clone()))]).await;
            waiting.push(self::file(&answer[0]));
        }
        files.insert(file.name().to_owned(), file);
    }
    let found = files
        .values()
        .flat_map(|file| file.service.iter().map(|service| format!("{}.{}", file.package(), service.name())));
    let (mut found, mut listed) = (found.collect::<Vec<_>>(), listed);
    found.sort();
    listed.sort();
    assert_eq!(found, listed);
    // Every type of a call is in one of the files.
    let types: Vec<_> = files
        .values()
        .flat_map(|file| {
            file.message_type.iter().map(|found| format!(".{}.{}", file.package(), found.name()))
        })
        .collect();
    for method in files.values().flat_map(|file| &file.service).flat_map(|service| &service.method) {
        for name in [method.input_type(), method.output_type()] {
            assert!(types.iter().any(|found| found == name), "{name} of {} is nowhere", method.name());
        }
    }
}

#[tokio::test]
async fn reflection_finds_known_symbols_only() {
    let (_wrapper, channel) = wrapper().await;
    let symbol = |name: &str| question(MessageRequest::FileContainingSymbol(name.to_owned()));
    let known = ["grit.wrapper.v1.Wrapper.Drain", "grit.wrapper.v1.State", "grit.wrapper.v1.DrainRequest"];
    for answer in ask(&channel, known.map(symbol).into()).await {
        assert_eq!(file(&answer).name(), "wrapper/v1/wrapper.proto");
    }
    let extension =
        ExtensionRequest { containing_type: "grit.wrapper.v1.Status".to_owned(), extension_number: 1 };
    let unknown = vec![
        symbol("grit.wrapper.v1.Nothing"),
        symbol(""),
        question(MessageRequest::FileByFilename("/etc/passwd".to_owned())),
        question(MessageRequest::FileContainingExtension(extension)),
        ServerReflectionRequest::default(),
    ];
    let codes: Vec<_> = ask(&channel, unknown)
        .await
        .into_iter()
        .map(|answer| match answer {
            MessageResponse::ErrorResponse(ErrorResponse { error_code, .. }) => Code::from_i32(error_code),
            other => panic!("{other:?}"),
        })
        .collect();
    let missing = Code::NotFound;
    assert_eq!(codes, [missing, missing, missing, missing, Code::InvalidArgument]);
}

/// The first request of older tools.
#[tokio::test]
async fn reflection_v1alpha_answers_like_v1() {
    let (_wrapper, channel) = wrapper().await;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
    let codec = tonic_prost::ProstCodec::<ServerReflectionRequest, ServerReflectionResponse>::default();
    let questions = tokio_stream::iter([question(MessageRequest::ListServices(String::new()))]);
    let answers = grpc.streaming(Request::new(questions), PathAndQuery::from_static(path), codec).await;
    let answer = answers.unwrap().into_inner().message().await.unwrap().unwrap();
    assert!(services(&answer.message_response.unwrap()).contains(&"grit.wrapper.v1.Wrapper".to_owned()));
}
