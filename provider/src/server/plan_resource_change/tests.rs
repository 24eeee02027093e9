use serde_json::{Value as Json, json};

use super::*;
use crate::call::Walk;

/// The calls of Terraform 1.16 for an object: in the plan, in the apply of a saved plan, and of a core that stores nothing.
#[tokio::test]
async fn stored_private_data_shows_plan_or_apply() {
    let object = || Some(wire::message(vec![0x80]));
    let null = || Some(wire::null_message());
    let called = async |stores: bool, proposed: Option<pb::DynamicValue>, planned_private: &[u8]| {
        let service = Service::new(crate::registry());
        service.0.walks.configured(false);
        let request = pb::plan_resource_change::Request {
            type_name: "grit_runner_drain".to_owned(),
            prior_state: null(),
            config: proposed.clone(),
            proposed_new_state: proposed,
            planned_private: planned_private.to_vec(),
            client_capabilities: Some(pb::ClientCapabilities {
                store_planned_private: stores,
                ..pb::ClientCapabilities::default()
            }),
            ..pb::plan_resource_change::Request::default()
        };
        let planned_private = service.plan(request).await.planned_private;
        (service.0.walks.now(), planned_private)
    };
    let (walk, first) = called(true, object(), b"").await;
    assert_eq!(walk, Walk::Plan);
    assert_eq!(called(true, object(), &first).await, (Walk::Apply, first.clone()));
    assert_ne!(called(true, object(), b"").await.1, first, "another object");
    assert_eq!(called(false, object(), b"").await.0, Walk::Unknown);
    assert_eq!(called(true, null(), b"").await.0, Walk::Unknown, "a destroy");
}

fn value(json: &Json) -> Option<pb::DynamicValue> {
    Some(pb::DynamicValue { msgpack: Vec::new(), json: json.to_string().into_bytes() })
}

/// An object with these attributes; the others are null.
fn object(nulls: &str, attributes: Json) -> Json {
    let nulls = nulls.split(' ').map(|name| (name.to_owned(), Json::Null));
    let Json::Object(attributes) = attributes else { panic!("an object") };
    nulls.chain(attributes).collect::<serde_json::Map<_, _>>().into()
}

fn manager(key: &str) -> Json {
    object(
        "username ssh_key_pem instance_id host_key",
        json!({ "instance_name": key, "address": format!("{key}.example"), "wrapper_address": "unix:///w.sock" }),
    )
}

fn health(keys: &[&str], status: &str) -> Json {
    let managers = keys.iter().map(|key| ((*key).to_owned(), manager(key)));
    let guards = keys.iter().map(|key| ((*key).to_owned(), json!(format!("{key}#1"))));
    object(
        "level min_jobs allow_shared_worker_group stable_for expected_version start_if_stopped retry triggers timeouts \
         started_drains managers",
        json!({
            "id": "health#1", "start_drains": true, "status": status,
            "runner_managers": managers.collect::<serde_json::Map<_, _>>(),
            "guards": guards.collect::<serde_json::Map<_, _>>(),
        }),
    )
}

/// A process after its configuration.
async fn configured() -> Service {
    let service = Service::new(crate::registry());
    let config = value(&object("ssh gitlab retry max_parallel", json!({})));
    let response = service.configure(pb::configure_provider::Request { config, ..Default::default() }).await;
    assert_eq!(response.diagnostics, []);
    service
}

/// Terraform 1.16 without a refresh: the drain of `a` ends, and the health check keeps `b`.
#[tokio::test]
async fn stored_private_data_of_plan_starts_drains() {
    let plan_health = async |service: &Service, stores: bool, planned_private: &[u8]| {
        let request = pb::plan_resource_change::Request {
            type_name: "grit_runner_health".to_owned(),
            prior_state: value(&health(&["a", "b"], "healthy")),
            config: value(&health(&["b"], "healthy")),
            proposed_new_state: value(&health(&["b"], "healthy")),
            prior_private: PrivateData::default().encode(),
            planned_private: planned_private.to_vec(),
            client_capabilities: Some(pb::ClientCapabilities {
                store_planned_private: stores,
                ..pb::ClientCapabilities::default()
            }),
            ..pb::plan_resource_change::Request::default()
        };
        let response = service.plan(request).await;
        let state: Json = rmp_serde::from_slice(&without_unknown(response.planned_state)).unwrap();
        (state["started_drains"].clone(), response.planned_private)
    };
    let end_drain = async |service: &Service| {
        let drain = object(
            "mode on_timeout on_unreachable on_lost_jobs guard shutdown_callback reason retry timeouts",
            json!({ "id": "a#1", "instance_id": "i-a", "runner_manager": manager("a") }),
        );
        let request = pb::plan_resource_change::Request {
            type_name: "grit_runner_drain".to_owned(),
            prior_state: value(&drain),
            proposed_new_state: Some(wire::null_message()),
            ..pb::plan_resource_change::Request::default()
        };
        service.plan(request).await;
    };
    for (stores, expected) in [(true, json!(["a"])), (false, Json::Null)] {
        let plan = configured().await;
        end_drain(&plan).await;
        let (started, private) = plan_health(&plan, stores, b"").await;
        assert_eq!(started, expected, "stores: {stores}");
        let again = plan_health(&configured().await, stores, if stores { &private } else { b"" }).await;
        assert_eq!(again.0, started, "the plan of the apply");
        assert_eq!(PrivateData::decode(&again.1).kept, PrivateData::decode(&private).kept);
    }
    let none = plan_health(&configured().await, true, b"").await;
    assert_eq!(none.0, Json::Null, "no drain ends");
}

/// The state with null for each unknown value.
fn without_unknown(state: Option<pb::DynamicValue>) -> Vec<u8> {
    wire::settle(state.unwrap().msgpack, wire::NIL)
}
