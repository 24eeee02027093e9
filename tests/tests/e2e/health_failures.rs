//! Each reason why a running runner is not healthy, from the host to the error of `terraform apply`: one apply over a map of
//! managers with different faults, which reports all of them.

use std::{collections::BTreeMap, path::PathBuf, process::Command, time::Duration};

use grit_testkit::program;
use grit_tests::{
    lab::{
        Lab,
        cloud::Instance,
        host::{Host, HostSpec},
        queue::FaultMode,
    },
    poll,
    rollout::PATIENCE,
    terraform::{Workspace, built},
};
use rustix::process::Signal;
use serde_json::{Map, Value as Json, json};

/// An unhealthy manager: its name, its fault, and the expected message.
struct Broken {
    name: &'static str,
    shape: Box<dyn Fn(&mut HostSpec) + Send + Sync>,
    reason: &'static str,
}

fn broken(
    name: &'static str,
    reason: &'static str,
    shape: impl Fn(&mut HostSpec) + Send + Sync + 'static,
) -> Broken {
    Broken { name, shape: Box::new(shape), reason }
}

fn with_runner(options: &'static [&str]) -> impl Fn(&mut HostSpec) {
    move |spec| *spec = std::mem::take(spec).runner(options)
}

/// A wrapper that logs to a file, with the runner's log, as under a unit with `StandardError=append:`.
fn with_log(folder: &tempfile::TempDir) -> PathBuf {
    let wrapper = folder.path().join("wrapper");
    let (program, log) = (built("grit-wrapper").unwrap(), folder.path().join("log"));
    program::script(&wrapper, &format!("exec {} \"$@\" 2>>{}", program.display(), log.display())).unwrap();
    wrapper
}

/// A map of managers, whose keys are the hosts' names.
struct Site {
    workspace: Workspace,
    hosts: BTreeMap<String, (Instance, Host, String)>,
}

impl Site {
    fn new() -> Self {
        Self { workspace: Workspace::new(&["grit"]).unwrap(), hosts: BTreeMap::new() }
    }

    fn add(&mut self, lab: &Lab, name: &str) {
        let (instance, host) = lab.cloud().create(name, "19.2.0").unwrap();
        self.hosts.insert(name.to_owned(), (instance, host, lab.client_key().pem().unwrap()));
    }

    fn host(&self, name: &str) -> &Host {
        &self.hosts[name].1
    }

    /// A health check over these managers, as the resource's attributes.
    fn health_check<'a>(&'a self, names: impl IntoIterator<Item = &'a str>, options: &Json) -> Json {
        let manager = |name: &'a str| {
            let (instance, _, key) = &self.hosts[name];
            let mut manager = instance.runner_manager();
            manager["ssh_key_pem"] = json!(key);
            (name.to_owned(), manager)
        };
        let managers: Map<String, Json> = names.into_iter().map(manager).collect();
        let mut health_check = json!({ "runner_managers": managers });
        health_check.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        health_check
    }

    /// Applies these health checks, and returns the details of the errors.
    fn apply(&self, gates: &Json) -> Result<(), Vec<String>> {
        let main = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "resource": { "grit_runner_health": gates },
        });
        self.workspace.write("main.tf.json", &main.to_string()).unwrap();
        let run = self.workspace.apply().unwrap();
        let errors: Vec<String> = run.errors().iter().map(|(_, detail)| (*detail).to_owned()).collect();
        if errors.is_empty() {
            run.succeeded();
            return Ok(());
        }
        run.failed();
        Err(errors)
    }

    /// Waits until each wrapper reports its reason, so that the health check does not have to wait for it.
    fn wait_for_reasons<'a>(&self, reasons: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (name, reason) in reasons {
            poll::until(&format!("the reason of {name}"), PATIENCE, || {
                let status = self.status(name)?;
                let lines = status["health"]["reasons"].as_array().cloned().unwrap_or_default();
                let told: Vec<_> =
                    lines.iter().chain([&status["failure_reason"]]).filter_map(Json::as_str).collect();
                if told.join("; ").contains(reason) { Ok(()) } else { Err(status.to_string()) }
            });
        }
    }

    fn status(&self, name: &str) -> Result<Json, String> {
        let mut command = Command::new(built("grit-wrapper").unwrap());
        command.args(["status", "--json", "--address", &self.host(name).wrapper_address()]);
        let output = command.output().unwrap();
        serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// More time changes neither of these.
const NO_SERVER: &str = "no HTTP server";
const REJECTED: &str = "GitLab rejects its token";

/// Each manager has exactly one error, with its name, its reason, and the code.
#[track_caller]
fn each_is_refused<'a>(errors: &[String], wanted: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let mut count = 0;
    for (name, reason) in wanted {
        count += 1;
        let of_it: Vec<_> =
            errors.iter().filter(|detail| detail.contains(&format!("Runner manager {name:?}"))).collect();
        let [detail] = of_it[..] else { panic!("{name} has {of_it:#?} among {errors:#?}") };
        let code = match reason {
            NO_SERVER => "Code: invalid_config",
            REJECTED => "Code: token_rejected",
            _ => "Code: timed_out",
        };
        assert!(detail.contains(reason) && detail.ends_with(code), "{name}: {detail}");
    }
    assert_eq!(errors.len(), count, "{errors:#?}");
    // A token is a secret.
    assert!(
        errors.iter().all(|detail| !detail.contains("glrt-") && !detail.contains("s3cret")),
        "{errors:#?}"
    );
}

/// Long enough for one status read of each manager on a busy machine; the reasons are already known.
fn briefly() -> Json {
    json!({ "create": "15s", "update": "15s" })
}

#[test]
fn each_unhealthy_new_manager_is_reported_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    let wrapper = with_log(&folder);
    let cases = [
        // It does not have /health/ready, so the process state is used.
        broken("starting", "the runner's process state is starting", |spec| {
            *spec = HostSpec::version("19.1.0").runner(&["--boot-verify=1h"]);
        }),
        broken("verifying", "boot-verify pending", with_runner(&["--boot-verify=1h"])),
        broken("early", ": connection failed", with_runner(&["--start-delay=1h"])),
        broken("foreign", "the runner's metrics do not contain its version", |spec| {
            *spec = HostSpec::version("18.0.0").runner(&["--metrics=foreign"]);
        }),
        broken("failing", ": HTTP status 500", with_runner(&["--metrics=broken"])),
        broken("silent", ": no response within 3s", with_runner(&["--metrics=silent"])),
        broken("bare", "config.toml\" does not exist", |spec| spec.configured = false),
        broken("empty", "no [[runners]] section", |spec| spec.tokens = Some(Vec::new())),
        broken("closed", NO_SERVER, |spec| spec.listen = false),
        broken("rejected", REJECTED, |spec| {
            spec.tokens = Some(vec!["glrt-good".into(), "glrt-bad".into()]);
        }),
        broken("dead", "exit status 1", move |spec| {
            *spec = std::mem::take(spec).runner(&["--boot-verify-fails"]);
            spec.wrapper_program = Some(wrapper.clone());
        }),
    ];
    let reasons: Vec<_> = cases.iter().map(|case| (case.name, case.reason)).collect();
    let lab = Lab::start().unwrap();
    lab.queue().refuse_token("glrt-bad");
    lab.cloud().shape(move |name, spec| {
        if let Some(case) = cases.iter().find(|case| case.name == name) {
            (case.shape)(spec);
        }
    });
    let mut site = Site::new();
    let names: Vec<_> = reasons.iter().map(|(name, _)| *name).chain(["healthy", "other"]).collect();
    for name in &names {
        site.add(&lab, name);
    }
    site.wait_for_reasons(reasons.iter().copied());
    // The healthy manager gives no error, and neither does a rejected token at a level below polling.
    let in_one = names.iter().copied().filter(|name| *name != "other");
    let gates = json!({
        "all": site.health_check(in_one, &json!({ "level": "polling", "timeouts": briefly() })),
        "ready": site.health_check(["rejected"], &json!({ "level": "ready" })),
        "version": site.health_check(["other"], &json!({ "expected_version": "19.9.9", "timeouts": briefly() })),
    });
    let errors = site.apply(&gates).unwrap_err();
    let version = ("other", "version of the runner is 19.2.0; `expected_version` is 19.9.9");
    each_is_refused(&errors, reasons.into_iter().chain([version]));
    let dead = errors.iter().find(|detail| detail.contains("\"dead\"")).unwrap();
    assert!(dead.contains("Last status: `stopped`, reason: exit status 1."), "{dead}");
    let state = site.workspace.state().unwrap();
    assert_eq!(state.at("grit_runner_health.ready").len(), 1, "it says that it is ready all the same");
    assert!(state.at("grit_runner_health.all").is_empty(), "it was not proven");
}

/// Each was healthy first, and then got a fault.
#[test]
fn each_manager_broken_later_is_reported_with_reason() {
    let lab = Lab::start().unwrap();
    lab.cloud().shape(|_, spec| {
        *spec = std::mem::take(spec).wrapper(&["--probe-interval=100ms"]);
        // A runner at its limit requests no jobs, so that a rejected token would not be noticed.
        spec.concurrent = 1000;
    });
    let names = ["draining", "rejected", "rewritten", "suspended"];
    let mut site = Site::new();
    for name in names {
        site.add(&lab, name);
    }
    let health_check = |options: &Json| json!({ "all": site.health_check(names, options) });
    site.apply(&health_check(&json!({}))).unwrap();

    // As by a debugger or a memory pressure daemon: the process exists, and is stopped.
    site.host("suspended").signal_runner(Signal::STOP).unwrap();
    // A direct signal to the runner, with a job: only the runner has this state.
    let held = lab.queue().hold_on(&["draining"], PATIENCE);
    site.host("draining").signal_runner(Signal::QUIT).unwrap();
    // The runner keeps its old configuration, but would fail after its next start.
    let config = site.host("rewritten").folder().join("config.toml");
    std::fs::write(config, "[[runners]]\ntoken = \"glrt-s3cret").unwrap();
    lab.queue().refuse_token("glrt-rejected");
    let disabled = " job requests failed in total; after 3 consecutive failures (unhealthy_requests_limit) the runner pauses \
                    its job requests for 1h (unhealthy_interval)";
    let reasons = [
        ("draining", "the runner's process state is graceful-shutdown"),
        ("rejected", disabled),
        ("rewritten", "config.toml\": invalid TOML"),
        ("suspended", "does nothing until it receives SIGCONT"),
    ];
    site.wait_for_reasons(reasons);
    let again = json!({ "level": "polling", "triggers": { "again": "1" }, "timeouts": briefly() });
    let errors = site.apply(&health_check(&again)).unwrap_err();
    each_is_refused(&errors, reasons);
    // As in GitLab Runner, a section is checked before it waits for its worker: on a busy machine, one more request follows the third failure.
    let rejected = errors.iter().find(|detail| detail.contains("Runner manager \"rejected\"")).unwrap();
    let (_, failed) = rejected.split_once("GitLab rejects its token; ").expect(rejected);
    let failed: u32 = failed.split(' ').next().unwrap().parse().unwrap();
    assert!(failed >= 3, "{rejected}");
    site.host("suspended").signal_runner(Signal::CONT).unwrap();
    lab.queue().release(&held);
}

/// The fault begins before the runner's start. Each manager has its own GitLab.
#[test]
fn each_manager_with_failing_gitlab_is_reported() {
    let cases = [
        ("slow", FaultMode::Fine, "no job request has had a response yet"),
        ("failing", FaultMode::Unavailable, "its job requests failed"),
        ("away", FaultMode::Down, "its job requests failed"),
    ];
    let mut site = Site::new();
    let mut labs = Vec::new();
    for (name, fault_mode, _) in cases {
        let lab = Lab::start().unwrap();
        lab.queue().set_fault_mode(fault_mode);
        if name == "slow" {
            let hour = Duration::from_secs(3600);
            lab.queue().set_latency(hour..=hour);
        }
        site.add(&lab, name);
        labs.push(lab);
    }
    let reasons = cases.map(|(name, _, reason)| (name, reason));
    site.wait_for_reasons(reasons);
    let health_check = site.health_check(cases.map(|(name, ..)| name), &json!({ "timeouts": briefly() }));
    each_is_refused(&site.apply(&json!({ "all": health_check })).unwrap_err(), reasons);
    for lab in &labs {
        lab.queue().set_fault_mode(FaultMode::Fine);
    }
}
