//! What "healthy" means on a host that runs grit-wrapper: every rung of the ladder, and what it does not take for healthy. The reasons that
//! are not here are in `health_reasons.rs`.

use grit_tests::{
    lab::{Lab, cloud::Instance, event::What, host::HostSpec},
    poll, program,
    rollout::PATIENCE,
    terraform::{Run, Workspace, built},
};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

/// A lab with one host, and a workspace with a gate over it.
pub(super) struct Gate {
    workspace: Workspace,
    pub(super) lab: Lab,
    instance: Instance,
}

impl Gate {
    pub(super) fn over(shape: impl Fn(&str, &mut HostSpec) + Send + Sync + 'static) -> Self {
        let lab = Lab::start().unwrap();
        lab.cloud().shape(shape);
        let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
        Self { workspace: Workspace::new(&["grit"]).unwrap(), lab, instance }
    }

    /// A healthy manager whose wrapper looks at its runner all the time.
    pub(super) fn healthy() -> Self {
        let gate = Self::over(|_, spec| {
            *spec = std::mem::take(spec).wrapper(&["--probe-interval=100ms"]);
        });
        gate.apply(&json!({})).succeeded();
        gate
    }

    /// What the gate says when it looks again, for longer than the wrapper takes to see what has happened since.
    #[track_caller]
    pub(super) fn refusal_now(&self, again: &str) -> String {
        self.refusal(json!({ "triggers": { "again": again }, "stable_for": "2s" }))
    }

    /// Applies the gate with these optional attributes.
    pub(super) fn apply(&self, options: &Json) -> Run {
        let instance = &self.instance;
        let mut gate = json!({
            "runner_managers": { "m1": instance.runner_manager() },
            "timeouts": { "create": "60s", "update": "60s" },
        });
        gate.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let main = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": { "private_key_path": self.lab.client_key().path } } },
            "resource": { "grit_runner_health": { "all": gate } },
        });
        self.workspace.write("main.tf.json", &main.to_string()).unwrap();
        self.workspace.apply().unwrap()
    }

    /// The evidence in the state.
    fn evidence(&self) -> Json {
        let state = self.workspace.state().unwrap();
        state.at("grit_runner_health.all")[0].attributes["managers"]["m1"].clone()
    }

    /// Applies with a short timeout, and returns the one error's detail.
    #[track_caller]
    pub(super) fn refusal(&self, options: Json) -> String {
        let mut options = options;
        let limit = options.get("timeouts").map_or(json!("5s"), |limits| limits["create"].clone());
        options["timeouts"] = json!({ "create": limit, "update": limit });
        let failed = self.apply(&options).failed();
        let errors = failed.errors();
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors[0].1.to_owned()
    }
}

#[test]
fn the_proof_says_what_was_seen() {
    let gate = Gate::over(|_, _| {});
    gate.apply(&json!({ "expected_version": "19.2.0" })).succeeded();
    let evidence = gate.evidence();
    assert_eq!(evidence["level"], "polling", "{evidence}");
    assert_eq!(evidence["version"], "19.2.0", "{evidence}");
    assert_eq!(evidence["jobs"], 0, "{evidence}");
    let pid = gate.lab.cloud().host("m1").unwrap().runner_pid().unwrap();
    assert_eq!(evidence["pid"], pid, "{evidence}");
    assert!(evidence["wrapper"].as_str().unwrap().starts_with("grit-wrapper "), "{evidence}");
}

#[test]
fn a_runner_without_an_http_server_is_seen_as_far_as_its_process() {
    let gate = Gate::over(|_, spec| spec.listen = false);
    let detail = gate.refusal(json!({ "level": "ready" }));
    assert!(detail.contains("no HTTP server"), "{detail}");
    gate.apply(&json!({})).succeeded();
    let evidence = gate.evidence();
    assert_eq!((&evidence["level"], &evidence["jobs"]), (&json!("process"), &Json::Null), "{evidence}");
}

#[test]
fn an_older_runner_is_asked_for_what_it_has() {
    let gate = Gate::over(|_, spec| spec.runner_version = "18.0.0".to_owned());
    gate.apply(&json!({})).succeeded();
    assert_eq!(gate.evidence()["level"], "polling");
}

#[test]
fn a_missing_configuration_is_unhealthy() {
    let gate = Gate::over(|_, spec| spec.configured = false);
    let detail = gate.refusal(json!({}));
    assert!(detail.contains("config.toml\" does not exist"), "{detail}");
    assert!(detail.ends_with("Code: timed_out"), "{detail}");
}

#[test]
fn a_configuration_without_runners_is_unhealthy() {
    let gate = Gate::over(|_, spec| spec.tokens = Some(Vec::new()));
    let detail = gate.refusal(json!({}));
    assert!(detail.contains("has 0 [[runners]] sections"), "{detail}");
}

#[test]
fn a_rejected_token_is_unhealthy() {
    let gate = Gate::over(|_, spec| spec.tokens = Some(vec!["glrt-good".into(), "glrt-bad".into()]));
    gate.lab.queue().refuse_token("glrt-bad");
    let detail = gate.refusal(json!({}));
    assert!(detail.contains("GitLab rejects its token"), "{detail}");
    assert!(!detail.contains("glrt-bad"), "a token is a secret: {detail}");
    // It says that it is ready all the same.
    gate.apply(&json!({ "level": "ready" })).succeeded();
}

#[test]
fn a_boot_verification_is_waited_for() {
    let gate = Gate::over(|_, spec| *spec = std::mem::take(spec).runner(&["--boot-verify=8s"]));
    let detail = gate.refusal(json!({ "level": "ready" }));
    assert!(detail.contains("boot-verify pending"), "{detail}");
    gate.apply(&json!({ "level": "ready" })).succeeded();
}

/// As under a unit with `StandardError=append:`.
#[test]
fn a_runner_that_fails_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let wrapper = folder.path().join("wrapper");
    let (program, log) = (built("grit-wrapper").unwrap(), folder.path().join("log"));
    program::script(&wrapper, &format!("exec {} \"$@\" 2>>{}", program.display(), log.display())).unwrap();
    let gate = Gate::over(move |_, spec| {
        *spec = std::mem::take(spec).runner(&["--boot-verify-fails"]);
        spec.wrapper_program = Some(wrapper.clone());
    });
    let detail = gate.refusal(json!({}));
    assert!(detail.contains("Last status: `stopped`, with the reason: exit status 1."), "{detail}");
    let log = "\n\nThe last lines of the runner's log:\n  runner: ";
    assert!(detail.contains(log) && detail.contains("\n  runner: Boot-verify canary failed"), "{detail}");
    assert!(!detail.contains("glrt-m1"), "a token is a secret: {detail}");
}

#[test]
fn another_version_is_unhealthy() {
    let gate = Gate::over(|_, _| {});
    let detail = gate.refusal(json!({ "expected_version": "19.9.9" }));
    assert!(detail.contains("version 19.2.0, and `expected_version` is 19.9.9"), "{detail}");
}

#[test]
fn a_runner_that_ended_is_started_where_that_is_wanted() {
    let gate = Gate::over(|_, _| {});
    gate.apply(&json!({})).succeeded();
    let host = gate.lab.cloud().host("m1").unwrap();
    let first = host.runner_pid().unwrap();
    host.signal_runner(Signal::QUIT).unwrap();
    poll::until("the runner has ended", PATIENCE, || host.runner_pid().map_or(Ok(()), Err));

    gate.apply(&json!({ "start_if_stopped": true, "triggers": { "switch": "1" } })).succeeded();
    assert_ne!(host.runner_pid().unwrap(), first);
}

#[test]
fn a_job_does_not_drain_its_own_runner() {
    let gate = Gate::over(|_, _| {});
    gate.apply(&json!({})).succeeded();
    gate.lab.queue().submit_held(1);
    gate.lab
        .events()
        .wait_for("the job runs", PATIENCE, |event| matches!(event.what, What::JobStarted { .. }));
    let host = gate.lab.cloud().host("m1").unwrap();
    let url = poll::until("the runner lists the job", PATIENCE, || job_url(&host.runner_url()));

    let instance = &gate.instance;
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": { "ssh": { "private_key_path": gate.lab.client_key().path } } },
        "resource": { "grit_runner_drain": { "m1": {
            "instance_id": instance.id,
            "runner_manager": instance.runner_manager(),
        } } },
    });
    let workspace = Workspace::new(&["grit"]).unwrap().env("CI_JOB_URL", url);
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    workspace.apply().unwrap().succeeded();
    let refused = workspace.destroy().unwrap().failed();
    let errors = refused.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.contains("run it on another runner"), "{errors:?}");
    assert!(errors[0].1.contains("No shutdown was requested"), "{errors:?}");
    assert!(errors[0].1.ends_with("Code: refused"), "{errors:?}");
    let signalled = gate.lab.events().find(|event| matches!(event.what, What::RunnerSignal { .. }));
    assert_eq!(signalled, None, "nothing was stopped");
}

/// The URL of the first job that the runner lists.
fn job_url(runner: &str) -> Result<String, String> {
    use std::io::{Read as _, Write as _};
    let address = runner.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).map_err(|error| error.to_string())?;
    let request = format!("GET /debug/jobs/list HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
    let url = answer.split_whitespace().find_map(|word| word.strip_prefix("url="));
    url.map(str::to_owned).ok_or(answer)
}
