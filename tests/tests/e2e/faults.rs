//! Each connection fault ends in an error that names manager, phase, cause and next step. The messages are snapshots.

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
  retry           = { attempts = 2, min_delay = "100ms" }
  timeouts        = { create = "4s" }
}
resource "grit_runner_drain" "m1" {
  count          = var.health ? 0 : 1
  instance_id    = "i-1"
  runner_manager = var.manager
  retry          = { attempts = 2, min_delay = "100ms" }
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

    /// The only error of a failed health wait, with variable parts replaced.
    fn health_error(&self) -> String {
        self.only_error(&self.apply(true).failed())
    }

    /// The only error of a failed drain.
    fn drain_error(&self) -> String {
        self.apply(false).succeeded();
        self.only_error(&self.workspace.destroy().unwrap().failed())
    }

    fn only_error(&self, run: &Run) -> String {
        let errors = run.errors();
        let [(summary, detail)] = errors.as_slice() else { panic!("not one error: {errors:?}") };
        self.normalised(&format!("{summary}\n\n{detail}"))
    }

    fn normalised(&self, text: &str) -> String {
        let text = grit_tests::sshd::without_advice_for_root(text)
            .replace(self.host.address(), "HOST:PORT")
            .replace(&known_hosts_name(self.host.address()), "[HOST]:PORT")
            .replace(&format!("{:?}", self.host.username()), "\"USER\"")
            .replace(&self.workspace.path().display().to_string(), "WORKSPACE")
            .replace(&self.lab.folder().display().to_string(), "LAB")
            .replace(self.host.host_key(), "HOST-KEY");
        // Fingerprints, times and counts.
        let mut out = String::new();
        for word in text.split_inclusive([' ', '\n']) {
            let bare = word.trim_end();
            let tail = &word[bare.len()..];
            let core = bare.trim_end_matches(['.', ',', ';', ':', ')']);
            let marks = &bare[core.len()..];
            let lead = core.len() - core.trim_start_matches('(').len();
            let normal = match &core[lead..] {
                key if key.starts_with("SHA256:") => "SHA256:…",
                key if key.starts_with("AAAAC3Nza") => "AAAA…",
                time if time.len() > 1
                    && time.ends_with('s')
                    && time[..time.len() - 1].parse::<f64>().is_ok() =>
                {
                    "N s"
                }
                other => other,
            };
            out += &format!("{}{normal}{marks}{tail}", &core[..lead]);
        }
        out
    }
}

/// `[host]:port`, as in a known_hosts file.
fn known_hosts_name(address: &str) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) => format!("[{host}]:{port}"),
        None => address.to_owned(),
    }
}

#[test]
fn wrong_key_fails_health_check() {
    let mut fault = Fault::new();
    let stranger = fault.lab.folder().join("stranger");
    std::fs::create_dir(&stranger).unwrap();
    fault.ssh = json!({ "private_key_path": ClientKey::make(&stranger).unwrap().path });
    insta::assert_snapshot!(fault.health_error());
}

/// One health check over managers with different faults: each is reported, with the message of a separate health check.
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
    let named = |name: &str| {
        let mine = format!("Runner manager \"{name}\"");
        let (summary, detail) = errors.iter().find(|(_, detail)| detail.contains(&mine)).unwrap();
        // The message of a health check over one manager has no count of the others.
        let (before, after) = detail.split_once(" None of the 4 runner managers is healthy.").unwrap();
        let text = format!("{summary}\n\n{before}{after}").replace(&mine, "Runner manager \"m1\"");
        fault.normalised(&text.replace(down.address(), fault.host.address())).replace(&key, "OTHER-KEY")
    };
    for name in ["wrong_host_key", "unknown_host_key", "host_down", "socket_missing"] {
        insta::assert_snapshot!(name, named(name));
    }
}

#[test]
fn unreachable_host_fails_drain() {
    let fault = Fault::new();
    fault.host.cut_off();
    insta::assert_snapshot!(fault.drain_error());
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
    insta::assert_snapshot!(fault.health_error());
}

#[test]
fn runner_that_never_exits_fails_drain() {
    let fault = Fault::new();
    fault.lab.queue().submit_held(1);
    fault.lab.events().wait_for("the job runs", grit_tests::rollout::PATIENCE, |event| {
        matches!(event.what, grit_tests::lab::event::What::JobStarted { .. })
    });
    insta::assert_snapshot!(fault.drain_error());
}

#[test]
fn missing_credentials_fail_health_check() {
    let mut fault = Fault::new();
    fault.ssh = json!({});
    insta::assert_snapshot!(fault.health_error());
}

fn findings(body: &str) -> String {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let head = "terraform {\n  required_providers {\n    grit = {\n      source = \"runner-tools/grit\"\n    }\n  }\n}\n";
    workspace.write("main.tf", &format!("{head}{body}")).unwrap();
    let run = workspace.validate().unwrap();
    let mut findings: Vec<_> =
        run.errors().into_iter().map(|(summary, detail)| format!("{summary}\n  {detail}")).collect();
    findings.sort();
    findings.join("\n")
}

#[test]
fn validate_reports_errors_in_provider_block() {
    insta::assert_snapshot!(findings(
        r#"
provider "grit" {
  ssh = {
    connect_timeout  = "5 minutes"
    private_key      = "x"
    private_key_path = "y"
  }
  retry        = { attempts = 0 }
  max_parallel = 0
}
resource "grit_runner_health" "all" {
  runner_managers = {}
}
"#
    ));
}

#[test]
fn validate_reports_errors_in_resources() {
    insta::assert_snapshot!(findings(
        r#"
resource "grit_runner_health" "all" {
  runner_managers = {
    m1 = { instance_name = "m1", address = "h:99999", wrapper_address = "/run/x.sock" }
    m2 = null
  }
  timeouts = { create = "10" }
}
resource "grit_runner_drain" "m1" {
  instance_id    = ""
  runner_manager = { instance_name = "m1", address = "", wrapper_address = "tcp://localhost" }
  mode           = "gentle"
  guard = {
    peers       = {}
    min_healthy = 1
  }
  shutdown_callback = { url = "ftp://example.com" }
}
"#
    ));
}
