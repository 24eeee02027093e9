//! gRPC's server reflection: `grpcurl -plaintext -unix /run/grit-wrapper/wrapper.sock list`, and every call without a definition at hand.
//!
//! The usual crate decodes all definitions at the start and keeps them in memory, for a call that is rare. Here they are constants in a
//! generated table. The older name of the service, `v1alpha`, has the same messages and the same answers.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use futures::{StreamExt, future};
use grit_proto::{
    descriptors::{FILES, File},
    reflection::{
        ErrorResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
        ServerReflectionResponse, ServiceResponse,
        server_reflection_request::MessageRequest,
        server_reflection_response::MessageResponse,
        server_reflection_server::{ServerReflection, ServerReflectionServer},
    },
};
use hyper::{Uri, http};
use tonic::{
    Code, Request, Response, Status, Streaming,
    body::Body,
    codegen::{BoxStream, Service},
    server::NamedService,
};

use super::calls::Authorizer;
use crate::daemon::serve::access::Rights;

/// The reflection service, for clients with read access.
#[derive(Clone, Debug)]
pub(super) struct Reflection {
    pub(super) authorizer: Authorizer,
    /// Services that are not offered, and so not listed.
    pub(super) hidden: &'static [&'static str],
}

#[tonic::async_trait]
impl ServerReflection for Reflection {
    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<BoxStream<ServerReflectionResponse>>, Status> {
        let (questions, _) = self.authorizer.open(Rights::Read, request)?;
        let hidden = self.hidden;
        let answers = questions.map(move |question| question.map(|question| answer(question, hidden)));
        // An error is the last answer.
        let answers = answers.scan(false, |over, answer| {
            let wanted = !*over;
            *over = answer.is_err();
            future::ready(wanted.then_some(answer))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

fn answer(question: ServerReflectionRequest, hidden: &[&str]) -> ServerReflectionResponse {
    let answer = match &question.message_request {
        Some(MessageRequest::ListServices(_)) => {
            let all = FILES.iter().flat_map(|file| file.services);
            let service = all.filter(|name| !hidden.contains(name));
            let service = service.map(|name| ServiceResponse { name: (*name).to_owned() }).collect();
            MessageResponse::ListServicesResponse(ListServiceResponse { service })
        }
        Some(MessageRequest::FileByFilename(name)) => file(|file| file.name == name),
        Some(MessageRequest::FileContainingSymbol(symbol)) => {
            file(|file| file.symbols.contains(&symbol.as_str()))
        }
        Some(MessageRequest::FileContainingExtension(_) | MessageRequest::AllExtensionNumbersOfType(_)) => {
            error(Code::NotFound, "no extensions are defined")
        }
        None => error(Code::InvalidArgument, "message_request is empty"),
    };
    ServerReflectionResponse {
        valid_host: question.host.clone(),
        original_request: Some(question),
        message_response: Some(answer),
    }
}

fn file(is_wanted: impl Fn(&File) -> bool) -> MessageResponse {
    match FILES.iter().find(|file| is_wanted(file)) {
        Some(file) => MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
            file_descriptor_proto: vec![file.descriptor.to_vec()],
        }),
        None => error(Code::NotFound, "name not found"),
    }
}

fn error(code: Code, why: &str) -> MessageResponse {
    MessageResponse::ErrorResponse(ErrorResponse { error_code: code as i32, error_message: why.to_owned() })
}

/// The same service under its older name.
#[derive(Clone, Debug)]
pub(super) struct Older(pub(super) ServerReflectionServer<Reflection>);

impl NamedService for Older {
    const NAME: &'static str = "grpc.reflection.v1alpha.ServerReflection";
}

impl Service<http::Request<Body>> for Older {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = <ServerReflectionServer<Reflection> as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        *request.uri_mut() = Uri::from_static("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
        self.0.call(request)
    }
}
