//! Terraform's calls to the whole provider, without a process and without Terraform.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use grit_plugin::{Service, schema::Value};
use grit_proto::tfplugin6::{self as pb, provider_server::Provider};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tonic::Request;

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
    let drains = keys.iter().map(|key| ((*key).to_owned(), json!(format!("{key}#1"))));
    object(
        "level min_jobs stable_for expected_version start_if_stopped retry triggers timeouts \
         started_drains managers",
        json!({
            "id": "health#1", "start_drains": true, "status": status,
            "runner_managers": managers.collect::<serde_json::Map<_, _>>(),
            "drains": drains.collect::<serde_json::Map<_, _>>(),
        }),
    )
}

/// The token would be sent in clear.
#[tokio::test]
async fn gitlab_url_without_tls_is_a_warning() {
    for (url, titles) in [
        ("http://gitlab.example", &["GitLab token is sent without encryption"][..]),
        ("https://gitlab.example", &[]),
        ("http://127.0.0.1:8080", &[]),
    ] {
        let gitlab = object("ca_certificate", json!({ "url": url, "token": "glpat" }));
        let config = value(&object("ssh retry max_parallel", json!({ "gitlab": gitlab })));
        let request = pb::configure_provider::Request { config, ..Default::default() };
        let service = Service::new(grit_provider::registry());
        let response = service.configure_provider(Request::new(request)).await.unwrap().into_inner();
        let found: Vec<_> = response.diagnostics.iter().map(|warning| warning.summary.as_str()).collect();
        assert_eq!(found, titles, "{url}");
    }
}

/// `terraform validate` of provider blocks. Terraform shows the path of the whole object only, so that the detail names the attribute.
#[tokio::test]
async fn errors_of_the_provider_block_name_their_attributes() {
    let service = Service::new(grit_provider::registry());
    let schema = schemas().await.provider.unwrap().block.unwrap();
    for (block, wanted) in [
        (
            json!({ "ssh": {
                "private_key_path": "/nonexistent/id_ed25519",
                "certificate_path": "/nonexistent/id_ed25519-cert.pub",
                "host_keys": ["SHA256:short"], "host_ca": ["not a key"], "known_hosts": "nothing",
                "connect_timeout": "5 minutes", "call_timeout": "10",
            } }),
            &[
                "Invalid SSH option: ssh.host_ca[0]",
                "Invalid SSH option: ssh.host_keys[0]",
                "Invalid SSH option: ssh.known_hosts",
                "Invalid duration: ssh.call_timeout",
                "Invalid duration: ssh.connect_timeout",
            ][..],
        ),
        (
            json!({ "ssh": {
                "proxy_command": ["ssh", "bastion", "-W", "{{hots}}:{{port}}"],
                "ssh_command": ["nc", "{{wrapper_path}}"],
            } }),
            &[
                "Conflicting connection methods: ssh.proxy_command",
                "Invalid SSH option: ssh.proxy_command[3]",
            ],
        ),
        (
            json!({ "ssh": { "ssh_command": ["nc", "{{wrapper_pat"] } }),
            &["Invalid SSH option: ssh.ssh_command[1]"],
        ),
        (
            json!({
                "ssh": { "private_key": "x", "private_key_path": "y" },
                "retry": { "attempts": 0 }, "max_parallel": 0,
            }),
            &[
                "Conflicting private keys: ssh.private_key",
                "Invalid SSH option: ssh.private_key",
                "Invalid number: max_parallel",
                "Invalid number: retry.attempts",
            ],
        ),
    ] {
        let config = value(&complete(&schema.attributes, &block));
        let request = pb::validate_provider_config::Request { config };
        let response = service.validate_provider_config(Request::new(request)).await.unwrap().into_inner();
        let errors = response.diagnostics.iter().filter(|it| is_error(it));
        let mut found: Vec<_> = errors
            .map(|error| {
                assert!(error.detail.ends_with("\n\nCode: invalid_config"), "{}", error.detail);
                format!("{}: {}", error.summary, error.detail.split('`').nth(1).unwrap())
            })
            .collect();
        found.sort();
        assert_eq!(found, wanted);
    }
}

/// A process after its configuration.
async fn configured() -> Service {
    let service = Service::new(grit_provider::registry());
    let config = value(&object("ssh gitlab retry max_parallel", json!({})));
    let response = service
        .configure_provider(Request::new(pb::configure_provider::Request { config, ..Default::default() }))
        .await
        .unwrap()
        .into_inner();
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
            prior_private: b"{}".to_vec(),
            planned_private: planned_private.to_vec(),
            client_capabilities: Some(pb::ClientCapabilities {
                store_planned_private: stores,
                ..pb::ClientCapabilities::default()
            }),
            ..pb::plan_resource_change::Request::default()
        };
        let response = service.plan_resource_change(Request::new(request)).await.unwrap().into_inner();
        (started_drains(response.planned_state), response.planned_private)
    };
    let end_drain = async |service: &Service| {
        let drain = object(
            "mode on_timeout on_unreachable on_lost_jobs reason retry timeouts",
            json!({ "id": "a#1", "instance_id": "i-a", "runner_manager": manager("a") }),
        );
        let request = pb::plan_resource_change::Request {
            type_name: "grit_runner_drain".to_owned(),
            prior_state: value(&drain),
            proposed_new_state: Some(null()),
            ..pb::plan_resource_change::Request::default()
        };
        service.plan_resource_change(Request::new(request)).await.unwrap().into_inner();
    };
    for (stores, expected) in [(true, json!(["a"])), (false, Json::Null)] {
        let plan = configured().await;
        end_drain(&plan).await;
        let (started, private) = plan_health(&plan, stores, b"").await;
        assert_eq!(started, expected, "stores: {stores}");
        let again = plan_health(&configured().await, stores, if stores { &private } else { b"" }).await;
        assert_eq!(again.0, started, "the plan of the apply");
        assert_eq!(kept(&again.1), kept(&private));
    }
    let none = plan_health(&configured().await, true, b"").await;
    assert_eq!(none.0, Json::Null, "no drain ends");
}

/// The instance of a drain that was stored without one may be the one that this plan replaces.
#[tokio::test]
async fn unknown_instance_of_stored_drain_is_refused() {
    const NULLS: &str = "instance_id mode on_timeout on_unreachable on_lost_jobs reason retry timeouts";
    let service = configured().await;
    let stored = object(NULLS, json!({ "id": "a#1", "runner_manager": manager("a") }));
    let plan = async |instance: Value<Json>| {
        let mut proposed: BTreeMap<String, Value<Json>> = serde_json::from_value(stored.clone()).unwrap();
        proposed.insert("instance_id".to_owned(), instance);
        let msgpack = rmp_serde::to_vec_named(&proposed).unwrap();
        let request = pb::plan_resource_change::Request {
            type_name: "grit_runner_drain".to_owned(),
            prior_state: value(&stored),
            proposed_new_state: Some(pb::DynamicValue { msgpack, json: Vec::new() }),
            ..pb::plan_resource_change::Request::default()
        };
        let response = service.plan_resource_change(Request::new(request)).await.unwrap().into_inner();
        response.diagnostics.into_iter().map(|it| it.summary).collect::<Vec<_>>()
    };
    assert_eq!(plan(Value::Unknown).await, ["Instance of the drain resource is not known yet"]);
    assert_eq!(plan(Value::Value(json!("i-a"))).await, [""; 0]);
}

/// The keys of `started_drains` in a planned state, as JSON.
fn started_drains(state: Option<pb::DynamicValue>) -> Json {
    #[derive(Deserialize)]
    struct Planned {
        started_drains: Json,
    }
    rmp_serde::from_slice::<Planned>(&state.unwrap().msgpack).unwrap().started_drains
}

/// What the resource kept in the private data of a plan.
fn kept(private: &[u8]) -> Json {
    serde_json::from_slice::<Json>(private).unwrap()["kept"].clone()
}

fn null() -> pb::DynamicValue {
    pb::DynamicValue { msgpack: vec![0xc0], json: Vec::new() }
}

/// This value of a block, with null for each attribute that it does not have.
fn complete(attributes: &[pb::schema::Attribute], value: &Json) -> Json {
    let Some(members) = value.as_object() else { return value.clone() };
    let attribute = |attribute: &pb::schema::Attribute| {
        let of = members.get(&attribute.name).unwrap_or(&Json::Null);
        let value = match &attribute.nested_type {
            None => of.clone(),
            Some(nested) if nested.nesting() == pb::schema::object::NestingMode::Map => of
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.clone(), complete(&nested.attributes, value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            Some(nested) => complete(&nested.attributes, of),
        };
        (attribute.name.clone(), value)
    };
    assert!(members.keys().all(|name| attributes.iter().any(|attribute| attribute.name == *name)), "{value}");
    attributes.iter().map(attribute).collect::<serde_json::Map<_, _>>().into()
}

/// Terraform 1.16.0 to at least 1.16.4 crashes, and loses the state of new resources, if a create that is stopped returns a state with an error while
/// another resource is written. No resource of this provider does.
#[tokio::test]
async fn stopped_or_failed_create_of_any_resource_returns_no_state() {
    let managers = json!({ "a": manager("a") });
    let schemas = schemas().await;
    let block = |schema: &pb::Schema| schema.block.clone().unwrap().attributes;
    for (name, schema) in &schemas.resource_schemas {
        let attributes = match name.as_str() {
            "grit_runner_drain" => json!({ "instance_id": "i-a", "runner_manager": manager("a") }),
            "grit_runner_health" => json!({ "runner_managers": managers, "level": "process" }),
            "grit_runner_shutdown" => json!({ "runner_managers": managers }),
            _ => panic!("{name} has no configuration in this test"),
        };
        // The first connection waits indefinitely, the second one fails.
        for (command, is_stopped) in [("sleep", true), ("false", false)] {
            let service = Service::new(grit_provider::registry());
            let provider = json!({ "ssh": { "ssh_command": [command, "3600"] }, "retry": { "attempts": 1 } });
            let config = value(&complete(&block(schemas.provider.as_ref().unwrap()), &provider));
            let configure = pb::configure_provider::Request { config, ..Default::default() };
            service.configure_provider(Request::new(configure)).await.unwrap();
            let config = value(&complete(&block(schema), &attributes));
            let plan = pb::plan_resource_change::Request {
                type_name: name.clone(),
                prior_state: Some(null()),
                config: config.clone(),
                proposed_new_state: config.clone(),
                ..Default::default()
            };
            let plan = service.plan_resource_change(Request::new(plan)).await.unwrap().into_inner();
            assert!(plan.diagnostics.iter().all(|it| !is_error(it)), "{name}: {:?}", plan.diagnostics);
            let apply = pb::apply_resource_change::Request {
                type_name: name.clone(),
                prior_state: Some(null()),
                planned_state: plan.planned_state,
                config,
                planned_private: plan.planned_private,
                ..Default::default()
            };
            let stop = async {
                if is_stopped {
                    // After the call has begun.
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                    service.stop_provider(Request::new(pb::stop_provider::Request {})).await.unwrap();
                }
            };
            let (applied, ()) = tokio::join!(service.apply_resource_change(Request::new(apply)), stop);
            let applied = applied.unwrap().into_inner();
            let has_failed = applied.diagnostics.iter().any(is_error);
            // A create of a drain does nothing, and cannot fail.
            assert_eq!(has_failed, name != "grit_runner_drain", "{name}: {:?}", applied.diagnostics);
            assert_eq!(applied.new_state == Some(null()), has_failed, "{name}");
        }
    }
}

/// The schemas of the provider.
async fn schemas() -> pb::get_provider_schema::Response {
    let service = Service::new(grit_provider::registry());
    let request = Request::new(pb::get_provider_schema::Request::default());
    service.get_provider_schema(request).await.unwrap().into_inner()
}

fn is_error(diagnostic: &pb::Diagnostic) -> bool {
    diagnostic.severity() == pb::diagnostic::Severity::Error
}

/// `terraform validate` and the plan of every type, with the connection of the provider block as far as it is known.
#[tokio::test]
async fn missing_address_is_refused_if_the_connection_needs_it() {
    let schemas = schemas().await;
    let block = |schema: &pb::Schema| schema.block.clone().unwrap().attributes;
    let mut pod = manager("pod-0");
    pod["address"] = Json::Null;
    let managers = json!({ "runner_managers": { "a": pod } });
    let drain = json!({ "instance_id": "i-a", "runner_manager": pod });
    let (exec, dial) = (json!(["kubectl", "exec", "{{instance_name}}"]), json!(["ssh", "{{host}}"]));
    let unknown = || Value::<Json>::Unknown;
    for (what, ssh_command, is_configured, is_refused) in [
        ("direct", Value::Null, false, true),
        ("direct", Value::Null, true, true),
        ("with the host", Value::Value(dial.clone()), false, true),
        ("with the host", Value::Value(dial), true, true),
        ("without the host", Value::Value(exec.clone()), false, false),
        ("without the host", Value::Value(exec), true, false),
        ("unknown", unknown(), false, false),
        ("unknown", unknown(), true, false),
    ] {
        let service = Service::new(grit_provider::registry());
        let provider = complete(&block(schemas.provider.as_ref().unwrap()), &json!({ "ssh": {} }));
        let mut provider: BTreeMap<String, Value<BTreeMap<String, Value<Json>>>> =
            serde_json::from_value(provider).unwrap();
        if let Some(Value::Value(ssh)) = provider.get_mut("ssh") {
            ssh.insert("ssh_command".to_owned(), ssh_command);
        }
        let msgpack = rmp_serde::to_vec_named(&provider).unwrap();
        let config = Some(pb::DynamicValue { msgpack, json: Vec::new() });
        let request = pb::validate_provider_config::Request { config: config.clone() };
        service.validate_provider_config(Request::new(request)).await.unwrap();
        if is_configured {
            let request = pb::configure_provider::Request { config, ..Default::default() };
            service.configure_provider(Request::new(request)).await.unwrap();
        }
        let check = |name: &str, at: &str, diagnostics: &[pb::Diagnostic]| {
            let found: Vec<_> = diagnostics.iter().map(|it| (is_error(it), &*it.detail)).collect();
            let start = format!("`{at}.address`: it is not set, and the connection needs it");
            let is_expected = match &found[..] {
                [] => !is_refused,
                [(_, detail)] => is_refused && detail.starts_with(&start),
                _ => false,
            };
            assert!(is_expected, "{name}, {what}, {is_configured}: {found:?}");
        };
        let at = "runner_managers[\"a\"]";
        for (name, schema) in &schemas.resource_schemas {
            let is_drain = name == "grit_runner_drain";
            let (attributes, at) = if is_drain { (&drain, "runner_manager") } else { (&managers, at) };
            let config = value(&complete(&block(schema), attributes));
            if is_configured && is_drain {
                // An update: the plan of a create may belong to an apply, and must not fail then.
                let request = pb::plan_resource_change::Request {
                    type_name: name.clone(),
                    prior_state: config.clone(),
                    config: config.clone(),
                    proposed_new_state: config,
                    ..Default::default()
                };
                let planned = service.plan_resource_change(Request::new(request)).await.unwrap();
                check(name, at, &planned.into_inner().diagnostics);
                continue;
            }
            let request = pb::validate_resource_config::Request {
                type_name: name.clone(),
                config,
                ..Default::default()
            };
            let checked = service.validate_resource_config(Request::new(request)).await.unwrap();
            check(name, at, &checked.into_inner().diagnostics);
        }
        let name = "grit_runner_status".to_owned();
        let config = value(&complete(&block(&schemas.data_source_schemas[&name]), &managers));
        let request = pb::validate_data_resource_config::Request { type_name: name.clone(), config };
        let checked = service.validate_data_resource_config(Request::new(request)).await.unwrap();
        check(&name, at, &checked.into_inner().diagnostics);
        let schema = schemas.action_schemas["grit_drain"].schema.as_ref().unwrap();
        let request = pb::plan_action::Request {
            action_type: "grit_drain".to_owned(),
            config: value(&complete(&block(schema), &managers)),
            ..Default::default()
        };
        let planned = service.plan_action(Request::new(request)).await.unwrap();
        check("grit_drain", at, &planned.into_inner().diagnostics);
    }
}
