//! Each reason why a runner that runs is no use, from a host that is just so to the refusal of `terraform apply`.

use std::time::Duration;

use grit_tests::{
    lab::{event::What, host::HostSpec, queue::Weather},
    poll,
    rollout::PATIENCE,
};
use rustix::process::Signal;
use serde_json::json;

use crate::health_levels::Gate;

/// Each on a host of its own, at `level`, with what the refusal says.
#[track_caller]
fn is_unhealthy(level: &str, reason: &str, shape: impl Fn(&mut HostSpec) + Send + Sync + 'static) {
    let gate = Gate::over(move |_, spec| shape(spec));
    let detail = gate.refusal(json!({ "level": level }));
    assert!(detail.contains(reason) && detail.ends_with("Code: timed_out"), "{detail}");
}

#[test]
fn a_young_process_is_unhealthy() {
    is_unhealthy("process", "the runner has run for less than 3600s", |spec| {
        *spec = std::mem::take(spec).wrapper(&["--min-uptime=1h"]);
    });
}

#[test]
fn a_runner_that_ended_by_itself_is_unhealthy_for_a_while() {
    let gate = Gate::over(|_, spec| {
        *spec = std::mem::take(spec).wrapper(&["--restart=always", "--restart-delay=10ms"]);
    });
    gate.apply(&json!({})).succeeded();
    let host = gate.lab.cloud().host("m1").unwrap();
    let first = host.runner_pid();
    host.signal_runner(Signal::KILL).unwrap();
    poll::until("another runner", PATIENCE, || match host.runner_pid() {
        Some(pid) if Some(pid) != first => Ok(()),
        other => Err(other),
    });
    let detail = gate.refusal(json!({ "triggers": { "again": "1" } }));
    assert!(detail.contains("the runner ended by itself and was restarted less than 60s ago"), "{detail}");
}

/// As by a debugger, or a memory pressure daemon: it lives, and does nothing.
#[test]
fn a_runner_that_is_suspended_is_unhealthy() {
    let gate = Gate::healthy();
    let host = gate.lab.cloud().host("m1").unwrap();
    host.signal_runner(Signal::STOP).unwrap();
    let detail = gate.refusal_now("1");
    assert!(detail.contains("does nothing until it gets SIGCONT"), "{detail}");
    host.signal_runner(Signal::CONT).unwrap();
}

#[test]
fn a_runner_that_drains_is_unhealthy() {
    let gate = Gate::healthy();
    let held = gate.lab.queue().submit_held(1);
    gate.lab
        .events()
        .wait_for("the job runs", PATIENCE, |event| matches!(event.what, What::JobStarted { .. }));
    // Behind the wrapper's back: only the runner itself knows.
    gate.lab.cloud().host("m1").unwrap().signal_runner(Signal::QUIT).unwrap();
    let detail = gate.refusal_now("1");
    assert!(detail.contains("the runner's process state is graceful-shutdown"), "{detail}");
    gate.lab.queue().release(&held);
}

#[test]
fn a_runner_that_is_still_starting_is_unhealthy() {
    // It has no /health/ready yet, and says it by its process state.
    is_unhealthy("ready", "the runner's process state is starting", |spec| {
        *spec = HostSpec::version("19.1.0").runner(&["--boot-verify=1h"]);
    });
}

#[test]
fn an_http_server_that_is_not_there_yet_is_unhealthy() {
    is_unhealthy("ready", ":9252: no connection", |spec| {
        *spec = std::mem::take(spec).runner(&["--start-delay=1h"]);
    });
}

#[test]
fn an_http_server_that_is_no_runners_is_unhealthy() {
    is_unhealthy("ready", "the runner's metrics do not say its version", |spec| {
        *spec = HostSpec::version("18.0.0").runner(&["--metrics=foreign"]);
    });
}

#[test]
fn an_http_server_that_fails_is_unhealthy() {
    is_unhealthy("ready", ":9252: 500 Internal Server Error", |spec| {
        *spec = std::mem::take(spec).runner(&["--metrics=broken"]);
    });
}

#[test]
fn an_http_server_that_never_answers_is_unhealthy() {
    is_unhealthy("ready", ":9252: no answer within 3s", |spec| {
        *spec = std::mem::take(spec).runner(&["--metrics=silent"]);
    });
}

#[test]
fn too_few_runners_are_unhealthy() {
    is_unhealthy("ready", "has 1 [[runners]] sections, and 2 are needed", |spec| {
        *spec = std::mem::take(spec).wrapper(&["--min-runners=2"]);
    });
}

/// The runner goes on with what it read before, and would not come back after its next start.
#[test]
fn a_configuration_that_broke_since_is_unhealthy() {
    let gate = Gate::healthy();
    let host = gate.lab.cloud().host("m1").unwrap();
    std::fs::write(host.folder().join("config.toml"), "[[runners]]\ntoken = \"glrt-s3cret").unwrap();
    let detail = gate.refusal_now("1");
    assert!(detail.contains("config.toml\" cannot be read: it is not valid TOML"), "{detail}");
    assert!(!detail.contains("s3cret"), "a token is a secret: {detail}");
}

/// With GitLab like this from before the runner's start.
#[track_caller]
fn is_unhealthy_when(weather: Weather, reasons: &[&str]) {
    let gate = Gate::over(move |_, spec| spec.boot_takes = Duration::from_secs(1));
    gate.lab.queue().set_weather(weather);
    let detail = gate.refusal(json!({ "timeouts": { "create": "12s" } }));
    assert!(reasons.iter().all(|reason| detail.contains(reason)), "{detail}");
    gate.lab.queue().set_weather(Weather::Fine);
}

#[test]
fn a_gitlab_that_does_not_answer_is_unhealthy() {
    is_unhealthy_when(Weather::Slow(Duration::from_secs(60)), &["no job request was answered yet"]);
}

#[test]
fn a_gitlab_that_fails_is_unhealthy() {
    is_unhealthy_when(Weather::Unavailable, &["its job requests fail"]);
}

#[test]
fn a_gitlab_that_cannot_be_reached_is_unhealthy() {
    is_unhealthy_when(Weather::Down, &["3 health checks failed, so the runner may have disabled it"]);
}

/// Its job requests were accepted for long, and the wrapper that saw their end is gone.
#[test]
fn a_token_that_was_rejected_before_the_wrapper_looked_is_unhealthy() {
    let gate = Gate::healthy();
    gate.lab.queue().refuse_token("glrt-m1");
    let disabled = gate.refusal_now("1");
    assert!(disabled.contains("GitLab rejects its token; 3 health checks failed"), "{disabled}");

    let host = gate.lab.cloud().host("m1").unwrap();
    let runner = host.runner_pid();
    host.signal_wrapper(Signal::KILL).unwrap();
    poll::until("the wrapper is dead", PATIENCE, || host.wrapper_pid().map_or(Ok(()), Err));
    host.start_wrapper().unwrap();
    let detail = gate.refusal_now("2");
    assert!(detail.contains("3 health checks failed, so the runner may have disabled it"), "{detail}");
    assert_eq!(host.runner_pid(), runner, "it was adopted");
}
