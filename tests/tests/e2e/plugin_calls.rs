//! Calls without Terraform: the caller stops, disconnects, or ends the process; and large messages.

use grit_proto::{goplugin, tfplugin6 as pb};
use grit_tests::{
    poll,
    terraform::{Client, ClientIdentity, Plugin, Workspace},
};
use serde_json::{Value as Json, json};

use crate::lab_probe::SOON;

struct Setup {
    lab: Workspace,
    plugin: Plugin,
    client: Client,
}

async fn start() -> Setup {
    let lab = Workspace::new(&["lab"]).unwrap();
    let identity = ClientIdentity::new().unwrap();
    let mut command = lab.provider("lab");
    command
        .env("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2")
        .env("PLUGIN_PROTOCOL_VERSIONS", "6")
        .env("PLUGIN_CLIENT_CERT", &identity.pem);
    let plugin = Plugin::spawn(command).unwrap();
    let client = Client::connect(&plugin.handshake, Some(&identity)).await.unwrap();
    Setup { lab, plugin, client }
}

/// The attributes of a `lab_probe`: null except for those given.
pub(super) fn probe(given: &Json) -> pb::DynamicValue {
    const NAMES: [&str; 11] = [
        "id",
        "name",
        "mode",
        "create_ms",
        "destroy_ms",
        "blob_kib",
        "blob",
        "secret",
        "weight",
        "known",
        "items",
    ];
    let attributes: serde_json::Map<_, _> =
        NAMES.iter().map(|name| ((*name).to_owned(), given.get(name).cloned().unwrap_or_default())).collect();
    pb::DynamicValue { msgpack: rmp_serde::to_vec_named(&attributes).unwrap(), json: Vec::new() }
}

pub(super) fn null() -> Option<pb::DynamicValue> {
    Some(pb::DynamicValue { msgpack: vec![0xc0], json: Vec::new() })
}

fn create(mode: &str) -> pb::apply_resource_change::Request {
    let planned = probe(&json!({"name": "p", "mode": mode, "create_ms": 300_000}));
    pb::apply_resource_change::Request {
        type_name: "lab_probe".into(),
        prior_state: null(),
        planned_state: Some(planned.clone()),
        config: Some(planned),
        ..Default::default()
    }
}

pub(super) fn attributes(value: Option<pb::DynamicValue>) -> Json {
    rmp_serde::from_slice(&value.unwrap().msgpack).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_provider_serves_reads_but_no_changes() {
    let mut setup = start().await;
    let mut creating = setup.client.clone();
    let in_flight = tokio::spawn(async move { creating.provider.apply_resource_change(create("")).await });
    setup.lab.wait_for("create_start", 1, SOON);
    setup.client.provider.stop_provider(pb::stop_provider::Request {}).await.unwrap();

    let stopped = in_flight.await.unwrap().unwrap().into_inner();
    assert_eq!(stopped.diagnostics[0].summary, "Create interrupted");
    assert_eq!(attributes(stopped.new_state)["id"], "id-p");

    let schema =
        setup.client.provider.get_provider_schema(pb::get_provider_schema::Request {}).await.unwrap();
    assert!(schema.into_inner().resource_schemas.contains_key("lab_probe"));
    let state = probe(&json!({"id": "id-p", "name": "p"}));
    let read = pb::read_resource::Request {
        type_name: "lab_probe".into(),
        current_state: Some(state),
        ..Default::default()
    };
    let read = setup.client.provider.read_resource(read).await.unwrap().into_inner();
    assert_eq!((read.diagnostics.len(), attributes(read.new_state)["id"].clone()), (0, json!("id-p")));

    // A create that was pending when Terraform sent StopProvider.
    let late = setup.client.provider.apply_resource_change(create("")).await.unwrap().into_inner();
    assert_eq!(late.diagnostics[0].summary, "Create interrupted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_ends_process_with_unresponsive_call() {
    let mut setup = start().await;
    let mut stdio = goplugin::grpc_stdio_client::GrpcStdioClient::new(setup.client.channel.clone());
    let mut stream = stdio.stream_stdio(()).await.unwrap().into_inner();
    let mut creating = setup.client.clone();
    let in_flight =
        tokio::spawn(async move { creating.provider.apply_resource_change(create("unresponsive")).await });
    setup.lab.wait_for("create_start", 1, SOON);
    setup.client.controller.shutdown(goplugin::Empty {}).await.unwrap();
    assert!(matches!(stream.message().await, Ok(None)), "the stream ends with the process");
    let code = poll::until("the process to end", SOON, || setup.plugin.exit_code().unwrap().ok_or("running"));
    assert_eq!(code, Some(0));
    assert!(in_flight.await.unwrap().is_err());
    assert!(!setup.plugin.handshake.socket.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_missing_calls_and_unknown_types_are_answered() {
    use tonic_health::pb::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };
    let mut setup = start().await;
    let request = HealthCheckRequest { service: "plugin".into() };
    let answer = HealthClient::new(setup.client.channel.clone()).check(request).await.unwrap();
    assert_eq!(answer.into_inner().status(), ServingStatus::Serving);

    let request = pb::open_ephemeral_resource::Request::default();
    let refusal = setup.client.provider.open_ephemeral_resource(request).await.unwrap_err();
    assert_eq!(refusal.code(), tonic::Code::Unimplemented);

    let request = pb::apply_resource_change::Request { type_name: "lab_nothing".into(), ..create("") };
    let answer = setup.client.provider.apply_resource_change(request).await.unwrap().into_inner();
    let detail = &answer.diagnostics[0].detail;
    assert!(detail.starts_with("This provider has no resource `lab_nothing`."), "{detail}");
    assert!(detail.ends_with("Code: invalid_config"), "{detail}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_70_mib_pass_in_both_directions() {
    let mut setup = start().await;
    let blob = "x".repeat(70 << 20);
    let request = pb::read_resource::Request {
        type_name: "lab_probe".into(),
        current_state: Some(probe(&json!({"id": "id-p", "name": "p", "blob": blob}))),
        ..Default::default()
    };
    let answer = setup.client.provider.read_resource(request).await.unwrap().into_inner();
    assert_eq!(answer.diagnostics, []);
    assert_eq!(attributes(answer.new_state)["blob"].as_str().map(str::len), Some(70 << 20));
}
