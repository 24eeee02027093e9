//! Each connection fault ends in an error that names the manager, with a title and a code. tests/ssh/messages.txt and `explain` have the wording.

use std::fs;

use grit_tests::{
    lab::{Lab, host::ssh::ClientKey},
    terraform::{Run, Workspace},
};
use serde_json::{Value as Json, json};

/// One health check over managers with different faults: each is reported.
#[test]
fn health_check_reports_every_failing_manager() {
    let lab = Lab::start().unwrap();
    let (up, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let (instance, down) = lab.cloud().create("m2", "19.2.0").unwrap();
    down.cut_off();
    let other = lab.folder().join("other");
    fs::create_dir(&other).unwrap();
    let public = ClientKey::make(&other).unwrap().public;
    let key = public.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let with = |attribute: &str, value: Json| {
        let mut manager = up.runner_manager();
        manager[attribute] = value;
        manager
    };
    let mut wrong_host_key = with("host_key", json!(key));
    // Each key is another manager.
    wrong_host_key["wrapper_address"] = json!("unix:///run/other.sock");
    let managers = json!({
        "wrong_host_key": wrong_host_key,
        "unknown_host_key": with("host_key", Json::Null),
        "host_down": instance.runner_manager(),
        "socket_missing": with("wrapper_address", json!("unix:///run/nobody-listens-here.sock")),
    });
    let health = json!({
        "runner_managers": managers, "retry": { "attempts": 2 }, "timeouts": { "create": "4s" },
    });
    let workspace = Workspace::new(&["grit"]).unwrap();
    let main = lab.configuration(&json!({ "grit_runner_health": { "all": health } }));
    workspace.write("main.tf.json", &main).unwrap();
    let run = workspace.apply().unwrap().failed();
    let errors = run.errors();
    assert_eq!(errors.len(), 4, "{errors:?}");
    for (name, title, code) in [
        ("wrong_host_key", "Host key has changed", "refused"),
        ("unknown_host_key", "Unknown host key", "refused"),
        ("host_down", "Host is not reachable", "connect_failed"),
        ("socket_missing", "Wrapper is not reachable", "connect_failed"),
    ] {
        let mine = format!("Runner manager \"{name}\"");
        let (summary, detail) = errors.iter().find(|(_, detail)| detail.starts_with(&mine)).unwrap();
        assert_eq!(*summary, title, "{detail}");
        assert!(detail.contains(" None of the 4 runner managers is healthy."), "{detail}");
        assert!(detail.ends_with(&format!("Code: {code}")), "{detail}");
    }
}

/// Terraform shows the line of a top-level attribute, so that the detail names the attribute.
pub(super) fn found_by(run: &Run) -> Vec<String> {
    let finding = |(title, detail): (&str, &str)| {
        assert!(detail.ends_with("\n\nCode: invalid_config"), "{detail}");
        format!("{title}: {}", detail.split('`').nth(1).unwrap_or_default())
    };
    let mut found: Vec<_> = run.errors().into_iter().map(finding).collect();
    found.sort();
    found
}
