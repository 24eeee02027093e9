//! The health levels on a host with grit-wrapper, and the stored evidence. Failures are in
//! `health_failures.rs`.

use std::time::{Duration, Instant};

use grit_tests::{
    lab::{Lab, cloud::Instance, event::What, host::HostSpec},
    poll,
    rollout::PATIENCE,
    terraform::{Run, Workspace},
};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

/// A lab with one host, and a workspace with a health check over it.
struct HealthCheck {
    workspace: Workspace,
    lab: Lab,
    instance: Instance,
}

impl HealthCheck {
    fn over(shape: impl Fn(&str, &mut HostSpec) + Send + Sync + 'static) -> Self {
        let lab = Lab::start().unwrap();
        lab.cloud().shape(shape);
        let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
        Self { workspace: Workspace::new(&["grit"]).unwrap(), lab, instance }
    }

    /// Applies the health check with these optional attributes.
    fn apply(&self, options: &Json) -> Run {
        let instance = &self.instance;
        let mut health_check = json!({
            "runner_managers": { "m1": instance.runner_manager() },
            "timeouts": { "create": "60s", "update": "60s" },
        });
        health_check.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let main = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": { "private_key_path": self.lab.client_key().path } } },
            "resource": { "grit_runner_health": { "all": health_check } },
        });
        self.workspace.write("main.tf.json", &main.to_string()).unwrap();
        self.workspace.apply().unwrap()
    }

    /// The evidence in the state.
    fn evidence(&self) -> Json {
        let state = self.workspace.state().unwrap();
        state.at("grit_runner_health.all")[0].attributes["managers"]["m1"].clone()
    }
}

#[test]
fn evidence_has_level_version_jobs_and_pid() {
    let health_check = HealthCheck::over(|_, _| {});
    health_check.apply(&json!({ "expected_version": "19.2.0" })).succeeded();
    let evidence = health_check.evidence();
    assert_eq!(evidence["level"], "polling", "{evidence}");
    assert_eq!(evidence["version"], "19.2.0", "{evidence}");
    assert_eq!(evidence["jobs"], 0, "{evidence}");
    let pid = health_check.lab.cloud().host("m1").unwrap().runner_pid().unwrap();
    assert_eq!(evidence["pid"], pid, "{evidence}");
    assert!(evidence["wrapper"].as_str().unwrap().starts_with("grit-wrapper "), "{evidence}");
}

/// The default of `level` is `polling`, for every runner manager.
#[test]
fn runner_without_http_server_needs_level_process() {
    let health_check = HealthCheck::over(|_, spec| spec.listen = false);
    let start = Instant::now();
    let failed = health_check.apply(&json!({})).failed();
    assert!(start.elapsed() < Duration::from_secs(30), "not after the timeout: {:?}", start.elapsed());
    let errors = failed.errors();
    for part in ["listen_address = \"127.0.0.1:9252\"", "`level = \"process\"`", "Code: invalid_config"] {
        assert!(errors.len() == 1 && errors[0].1.contains(part), "{part}: {errors:?}");
    }
    health_check.apply(&json!({ "level": "process" })).succeeded();
    // It stays visible: in the state, and at each plan.
    let state = health_check.workspace.state().unwrap();
    assert_eq!(state.at("grit_runner_health.all")[0].attributes["status"], "healthy (process only)");
    let planned = health_check.workspace.plan().unwrap().succeeded();
    assert_eq!(planned.planned(), Vec::<String>::new());
    let titles: Vec<_> = planned.warnings().iter().map(|(title, _)| *title).collect();
    assert_eq!(titles, ["Health check does not prove that runners take jobs"]);
    let evidence = health_check.evidence();
    assert_eq!((&evidence["level"], &evidence["jobs"]), (&json!("process"), &Json::Null), "{evidence}");
}

/// Fails unless a runner of this version reaches the level `polling`, with this token or the lab's.
fn reaches_polling(version: &'static str, token: Option<&'static str>) {
    let health_check = HealthCheck::over(move |_, spec| {
        spec.runner_version = version.to_owned();
        spec.tokens = token.map(|token| vec![token.to_owned()]);
    });
    health_check.apply(&json!({})).succeeded();
    assert_eq!(health_check.evidence()["level"], "polling", "{version}");
}

/// GitLab gives runners tokens with a partition, which the runner hides in its metrics since 18.2.
#[test]
fn runner_with_partitioned_token_has_level_polling() {
    for version in ["18.1.0", "19.2.0"] {
        reaches_polling(version, Some("glrt-t3_abcdefghijkl"));
    }
}

/// Since 18.10, the runner expands variables in the token. Before that, the label has the text itself.
#[test]
fn runner_with_token_of_its_environment_has_level_polling() {
    for version in ["18.9.0", "18.10.0"] {
        reaches_polling(version, Some("glrt-x${HOME}"));
    }
}

#[test]
fn start_if_stopped_starts_exited_runner() {
    let health_check = HealthCheck::over(|_, _| {});
    health_check.apply(&json!({})).succeeded();
    let host = health_check.lab.cloud().host("m1").unwrap();
    let first = host.runner_pid().unwrap();
    host.signal_runner(Signal::QUIT).unwrap();
    poll::until("the runner has ended", PATIENCE, || host.runner_pid().map_or(Ok(()), Err));

    health_check.apply(&json!({ "start_if_stopped": true, "triggers": { "switch": "1" } })).succeeded();
    assert_ne!(host.runner_pid().unwrap(), first);
}

#[test]
fn job_cannot_drain_its_own_runner() {
    let health_check = HealthCheck::over(|_, _| {});
    health_check.apply(&json!({})).succeeded();
    health_check.lab.queue().submit_held(1);
    health_check
        .lab
        .events()
        .wait_for("the job runs", PATIENCE, |event| matches!(event.what, What::JobStarted { .. }));
    let host = health_check.lab.cloud().host("m1").unwrap();
    let url = poll::until("the runner lists the job", PATIENCE, || job_url(&host.runner_url()));

    let instance = &health_check.instance;
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": { "ssh": { "private_key_path": health_check.lab.client_key().path } } },
        "resource": { "grit_runner_drain": { "m1": {
            "instance_id": instance.id,
            "runner_manager": instance.runner_manager(),
        } } },
    });
    let mut workspace = Workspace::new(&["grit"]).unwrap().env("CI_JOB_URL", &url);
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    workspace.apply().unwrap().succeeded();
    let refused = workspace.destroy().unwrap().failed();
    let errors = refused.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.contains("run the job on another runner"), "{errors:?}");
    assert!(errors[0].1.contains("No shutdown was requested"), "{errors:?}");
    assert!(errors[0].1.ends_with("Code: refused"), "{errors:?}");
    let signalled = health_check.lab.events().find(|event| matches!(event.what, What::RunnerSignal { .. }));
    assert_eq!(signalled, None, "nothing was stopped");

    // Nor can it repeat an interrupted drain of another runner's job: it would wait for itself.
    workspace.set_env("CI_JOB_URL", "");
    let mut interrupted = workspace.start(["destroy", "-auto-approve"]).unwrap();
    health_check
        .lab
        .events()
        .wait_for("the runner drains", PATIENCE, |event| matches!(event.what, What::RunnerSignal { .. }));
    interrupted.ctrl_c().unwrap();
    assert_eq!(interrupted.wait(PATIENCE).code, Some(1));
    workspace.set_env("CI_JOB_URL", url);
    let refused = workspace.destroy().unwrap().failed();
    let errors = refused.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.contains("run the job on another runner"), "{errors:?}");
    assert!(errors[0].1.contains("keeps draining on the host"), "{errors:?}");
    assert!(errors[0].1.ends_with("Code: refused"), "{errors:?}");
}

/// The URL of the first job in the runner's list.
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
