//! The outputs are those of GRIT's modules at commit ea2f168.

use serde_json::{Value as Json, json};

use super::*;

fn aws(name: &str) -> Json {
    json!({
        "enabled": true,
        "ec2_private_ip": "10.0.0.7",
        "ec2_public_ip": "192.0.2.7",
        "ec2_instance_name": name,
        "ec2_instance_id": "i-0123",
        "ec2_runner_wrapper_socket_path": "unix:///var/run/gitlab-runner-wrapper.sock",
        "ec2_ssh_key_openssh_pem": "KEY",
    })
}

fn google() -> Json {
    json!({
        "enabled": true,
        "internal_ip": "10.0.0.8",
        "external_ip": null,
        "internal_hostname": "m.c.p.internal",
        "instance_name": "m",
        "instance_id": "42",
        "wrapper_address": "tcp://127.0.0.1:7777",
    })
}

fn without(mut module: Json, output: &str) -> Json {
    module[output] = json!("");
    module
}

fn call(arguments: &[Json]) -> Result<Json, FunctionError> {
    let arguments = arguments.iter().map(|it| Value::Value(AnyValue::of_json(it))).collect();
    Ok(serde_json::to_value(ManagersFromGrit.call(arguments)?).unwrap())
}

#[track_caller]
fn error(arguments: &[Json]) -> FunctionError {
    let error = call(arguments).unwrap_err();
    assert!(!error.text.contains("KEY"), "{}", error.text);
    error
}

#[test]
fn outputs_of_both_modules_become_managers() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&call(&[aws("a"), google()]).unwrap()).unwrap());
}

#[test]
fn keys_of_a_map_are_kept() {
    let managers =
        call(&[json!({ "blue": aws("a"), "green": aws("a") }), json!([aws("c"), google()])]).unwrap();
    let keys: Vec<_> = managers.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["blue", "c", "green", "m"]);
    assert_eq!(managers["blue"]["instance_name"], "a");
    let unnamed = call(&[json!({ "blue": without(aws("a"), "ec2_instance_name") })]).unwrap();
    assert_eq!(unnamed["blue"]["instance_name"], "blue");
    assert_eq!(call(&[]), Ok(json!({})));
    assert_eq!(call(&[json!({}), json!([])]), Ok(json!({})), "modules with an empty for_each or count");
}

#[test]
fn private_address_is_used_if_public_is_empty() {
    let managers = call(&[without(aws("a"), "ec2_public_ip")]).unwrap();
    assert_eq!(managers["a"]["address"], "10.0.0.7");
    let mut public = google();
    public["external_ip"] = json!("192.0.2.8");
    assert_eq!(call(&[public]).unwrap()["m"]["address"], "192.0.2.8");
}

#[test]
fn plain_socket_path_becomes_an_address() {
    let mut module = aws("a");
    module["ec2_runner_wrapper_socket_path"] = json!("/run/w.sock");
    assert_eq!(call(&[module]).unwrap()["a"]["wrapper_address"], "unix:///run/w.sock");
}

#[test]
fn unusable_outputs_are_errors_of_their_argument() {
    let mut texts = String::new();
    for (wrong, position) in [
        (json!("text"), 1),
        (json!(["text"]), 1),
        (json!({ "url": "https://gitlab.example.com" }), 1),
        (json!({ "blue": { "url": "https://gitlab.example.com", "token": "t" } }), 1),
        (json!({ "blue": {} }), 1),
        (without(aws("b"), "ec2_runner_wrapper_socket_path"), 1),
        (without(without(aws("b"), "ec2_public_ip"), "ec2_private_ip"), 1),
        (without(aws("b"), "ec2_instance_name"), 1),
        (
            json!({ "blue": without(google(), "wrapper_address"), "green": without(google(), "internal_ip") }),
            1,
        ),
        (aws("a"), 1),
    ] {
        let error = error(&[aws("a"), wrong]);
        assert_eq!(error.argument, Some(position), "{}", error.text);
        texts += &format!("{}\n----\n", error.text);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn unknown_outputs_keep_known_keys() {
    let unknown = |outputs: &[(&str, Dynamic)]| {
        Dynamic::Object(outputs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    };
    let text = |text: &str| Dynamic::Text(text.to_owned());
    let planned = unknown(&[
        ("ec2_instance_name", text("a")),
        ("ec2_public_ip", Dynamic::Unknown),
        ("ec2_private_ip", Dynamic::Unknown),
        ("ec2_instance_id", Dynamic::Unknown),
        ("ec2_runner_wrapper_socket_path", text("unix:///run/w.sock")),
    ]);
    let mut problems = Problems::default();
    let entries = of_argument(&planned, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    let [(Value::Value(key), Value::Value(manager))] = entries.as_slice() else { panic!("one known entry") };
    assert!(key == "a" && manager.address.is_unknown() && manager.instance_id.is_unknown());
    assert!(manager.wrapper_address.is_value() && manager.ssh_key_pem.is_null());

    let unnamed = unknown(&[
        ("internal_ip", Dynamic::Unknown),
        ("instance_name", Dynamic::Unknown),
        ("wrapper_address", text("h:1")),
    ]);
    assert!(of_argument(&unnamed, &mut problems).iter().all(|(key, _)| key.is_unknown()));
    let whole = ManagersFromGrit.call(vec![Value::Unknown]);
    assert!(whole.is_ok_and(|result| result.is_unknown()));
}
