//! Failures inside a call: the state keeps existing objects, and the user gets an error.

use grit_plugin::Service;
use grit_proto::tfplugin6::{self as pb, provider_server::Provider as _};
use grit_tests::{
    lab_provider,
    terraform::{Run, Workspace},
};
use serde_json::json;
use tonic::Request;

use crate::{
    lab_probe::{lab, probe},
    plugin_calls,
};

fn apply_in(mode: &str) -> (Workspace, Run) {
    let lab = lab(&probe("p", &format!("mode = \"{mode}\"")));
    let run = lab.apply().unwrap();
    (lab, run)
}

#[track_caller]
fn assert_error(run: Run, summary: &str, part_of_detail: &str) {
    let run = run.failed();
    let errors = run.errors();
    assert!(
        errors.iter().any(|(s, detail)| *s == summary && detail.contains(part_of_detail)),
        "no error {summary:?} with {part_of_detail:?} in {errors:#?}"
    );
}

#[track_caller]
fn assert_checkpoint_is_tainted(lab: &Workspace) {
    let state = lab.state().unwrap();
    assert_eq!(state.objects.len(), 1, "{}", state.text);
    assert!(state.objects[0].tainted);
    assert_eq!(state.objects[0].attributes["id"], "id-p");
    assert_eq!(
        state.objects[0].attributes["blob"],
        serde_json::Value::Null,
        "unknown values are saved as null"
    );
    assert!(state.objects[0].private.is_some());
}

#[test]
fn panic_in_create_names_source_and_keeps_checkpoint() {
    let (lab, run) = apply_in("panic");
    assert_error(run, "Provider bug", "create of lab_probe panicked at tests/src/lab_provider/probe.rs:");
    assert_checkpoint_is_tainted(&lab);
}

/// Other failures, as Terraform receives them: the error, and the identifier in the state, if there is one.
#[tokio::test]
async fn every_failure_is_one_error_with_the_right_state() {
    let service = Service::new(lab_provider::registry());
    let object = |mode: &str, id: Option<&str>| {
        Some(plugin_calls::probe(&json!({ "id": id, "name": "p", "mode": mode })))
    };
    let (none, id) = ("returned no result and no error", Some("id-p"));
    for (verb, mode, detail, kept) in [
        ("create", "fail", "The mode is `fail`.", id),
        ("create", "none", none, id),
        ("create", "panic_at_once", "boom in create", None),
        ("update", "update_panic", "boom in update", id),
        ("destroy", "destroy_none", none, None),
        ("destroy", "destroy_panic", "boom in destroy", None),
        ("read", "read_none", none, None),
    ] {
        let (type_name, stored) = ("lab_probe".to_owned(), object(mode, id));
        let (prior_state, planned_state) = match verb {
            "create" => (plugin_calls::null(), object(mode, None)),
            "update" => (object("", id), stored.clone()),
            _ => (stored.clone(), plugin_calls::null()),
        };
        let (diagnostics, state) = if verb == "read" {
            let request =
                pb::read_resource::Request { type_name, current_state: stored, ..Default::default() };
            let answer = service.read_resource(Request::new(request)).await.unwrap().into_inner();
            (answer.diagnostics, plugin_calls::null())
        } else {
            let config = planned_state.clone();
            let request = pb::apply_resource_change::Request {
                type_name,
                prior_state,
                planned_state,
                config,
                ..Default::default()
            };
            let answer = service.apply_resource_change(Request::new(request)).await.unwrap().into_inner();
            (answer.diagnostics, answer.new_state)
        };
        let [error] = &diagnostics[..] else { panic!("{mode}: {diagnostics:?}") };
        let summary = if mode == "fail" { "Asked to fail" } else { "Provider bug" };
        assert_eq!(error.summary, summary, "{mode}");
        assert!(error.detail.contains(detail), "{mode}: {}", error.detail);
        // What failed, what to do, and the code, with empty lines in between, and no backtrace.
        assert!(error.detail.lines().count() <= 5, "{}", error.detail);
        assert_eq!(plugin_calls::attributes(state)["id"].as_str(), kept, "{mode}");
    }
}

/// Fails to destroy, and then succeeds, with the private data of the first apply and the mark `create_before_destroy`.
#[track_caller]
fn destroy_fails_and_keeps_everything(mode: &str, summary: &str, part_of_detail: &str) {
    let arguments = format!("mode = \"{mode}\"\nlifecycle {{\n create_before_destroy = true\n }}");
    let mut lab = lab(&probe("p", &arguments));
    lab.apply().unwrap().succeeded();
    let before = lab.state().unwrap().objects;

    lab.write("main.tf", &crate::lab_probe::with_header("")).unwrap();
    assert_error(lab.apply().unwrap(), summary, part_of_detail);
    let after = lab.state().unwrap().objects;
    assert_eq!(after.len(), 1);
    assert!(!after[0].tainted);
    assert!(after[0].create_before_destroy, "Terraform forgot the mark");
    assert_eq!(after[0].private, before[0].private);
    assert_eq!(after[0].attributes, before[0].attributes);

    lab.set_env("LAB_BEHAVE", "1");
    lab.apply().unwrap().succeeded();
    assert_eq!(lab.state().unwrap().objects.len(), 0);
}

#[test]
fn failed_destroy_keeps_object_and_private_data() {
    destroy_fails_and_keeps_everything("destroy_fail", "Asked to fail", "`destroy_fail`");
}

#[test]
fn read_of_missing_object_plans_create() {
    let (lab, run) = apply_in("gone");
    run.succeeded();
    assert_eq!(lab.plan().unwrap().succeeded().planned(), ["create lab_probe.p"]);
}
