//! Each connection fault ends in an error that names the manager, with a title and a code. tests/ssh/messages.txt and `explain` have the wording.

use grit_tests::{
    lab::{
        Lab,
        host::{Host, ssh::ClientKey},
    },
    terraform::{Run, Workspace},
};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

/// A host, and a configuration with one health check and one drain for a manager of the test.
struct Fault {
    workspace: Workspace,
    lab: Lab,
    host: Host,
    manager: Json,
    ssh: Json,
}

const MAIN: &str = r#"
terraform {
  required_providers {
    grit = {
      source = "runner-tools/grit"
    }
  }
}
variable "ssh" { type = any }
variable "manager" { type = any }
variable "managers" { type = any }
variable "health" { type = bool }
provider "grit" { ssh = var.ssh }
resource "grit_runner_health" "all" {
  count           = var.health ? 1 : 0
  runner_managers = var.managers
  retry           = { attempts = 2 }
  timeouts        = { create = "4s" }
}
resource "grit_runner_drain" "m1" {
  count          = var.health ? 0 : 1
  instance_id    = "i-1"
  runner_manager = var.manager
  retry          = { attempts = 2 }
  timeouts       = { delete = "4s" }
}
"#;

impl Fault {
    fn with(shape: impl Fn(&str, &mut grit_tests::lab::host::HostSpec) + Send + Sync + 'static) -> Self {
        let lab = Lab::start().unwrap();
        lab.cloud().shape(shape);
        let (instance, host) = lab.cloud().create("m1", "19.2.0").unwrap();
        let workspace = Workspace::new(&["grit"]).unwrap();
        workspace.write("main.tf", MAIN).unwrap();
        let manager = instance.runner_manager();
        let ssh = json!({ "private_key_path": lab.client_key().path });
        Self { workspace, lab, host, manager, ssh }
    }

    fn new() -> Self {
        Self::with(|_, _| {})
    }

    fn apply(&self, health: bool) -> Run {
        self.apply_with(health, &json!({ "m1": self.manager }))
    }

    fn apply_health_check(&self, managers: &Json) -> Run {
        self.apply_with(true, managers)
    }

    fn apply_with(&self, health: bool, managers: &Json) -> Run {
        let variables =
            json!({ "ssh": self.ssh, "manager": self.manager, "managers": managers, "health": health });
        self.workspace.write("terraform.tfvars.json", &variables.to_string()).unwrap();
        self.workspace.apply().unwrap()
    }

    /// A health check fails with this error.
    #[track_caller]
    fn assert_health_error(&self, title: &str, code: &str) {
        assert_only(&self.apply(true).failed().errors(), title, code);
    }

    /// A drain fails with this error, whose detail is returned.
    #[track_caller]
    fn assert_drain_error(&self, title: &str, code: &str) -> String {
        self.apply(false).succeeded();
        let run = self.workspace.destroy().unwrap().failed();
        let errors = run.errors();
        assert_only(&errors, title, code);
        errors[0].1.to_owned()
    }
}

#[track_caller]
fn assert_only(errors: &[(&str, &str)], title: &str, code: &str) {
    let [(summary, detail)] = errors else { panic!("not one error: {errors:?}") };
    assert_eq!(*summary, title, "{detail}");
    let names = detail.starts_with("Runner manager \"m1\"");
    assert!(names && detail.ends_with(&format!("\n\nCode: {code}")), "{detail}");
}

#[test]
fn wrong_key_fails_health_check() {
    let mut fault = Fault::new();
    let stranger = fault.lab.folder().join("stranger");
    std::fs::create_dir(&stranger).unwrap();
    fault.ssh = json!({ "private_key_path": ClientKey::make(&stranger).unwrap().path });
    fault.assert_health_error("Login refused", "refused");
}

/// One health check over managers with different faults: each is reported.
#[test]
fn health_check_reports_every_failing_manager() {
    let fault = Fault::new();
    let (instance, down) = fault.lab.cloud().create("m2", "19.2.0").unwrap();
    down.cut_off();
    let other = fault.lab.folder().join("other");
    std::fs::create_dir(&other).unwrap();
    let public = ClientKey::make(&other).unwrap().public;
    let key = public.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let with = |attribute: &str, value: Json| {
        let mut manager = fault.manager.clone();
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
    let run = fault.apply_health_check(&managers).failed();
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

#[test]
fn unreachable_host_fails_drain() {
    let fault = Fault::new();
    fault.host.cut_off();
    let detail = fault.assert_drain_error("Host is not reachable", "connect_failed");
    assert!(detail.contains("\n\n    GRIT_ASSUME_TERMINATED=i-1 terraform COMMAND\n\n"), "{detail}");
}

#[test]
fn runner_that_never_runs_fails_health_check() {
    // Its runner has begun to shut down, and does not exit.
    let fault = Fault::new();
    fault.lab.queue().submit_held(1);
    fault.lab.events().wait_for("the job runs", grit_tests::rollout::PATIENCE, |event| {
        matches!(event.what, grit_tests::lab::event::What::JobStarted { .. })
    });
    fault.host.signal_wrapper(Signal::QUIT).unwrap();
    fault.assert_health_error("Runner manager is not healthy", "timed_out");
}

#[test]
fn runner_that_never_exits_fails_drain() {
    let fault = Fault::new();
    fault.lab.queue().submit_held(1);
    fault.lab.events().wait_for("the job runs", grit_tests::rollout::PATIENCE, |event| {
        matches!(event.what, grit_tests::lab::event::What::JobStarted { .. })
    });
    let detail = fault.assert_drain_error("Runner was not drained in time", "timed_out");
    assert!(detail.contains("1 job left"), "{detail}");
}

#[test]
fn missing_credentials_fail_health_check() {
    let mut fault = Fault::new();
    fault.ssh = json!({});
    fault.assert_health_error("No SSH key", "invalid_config");
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
