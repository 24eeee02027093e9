use std::time::Duration;

use grit_proto::wrapper_v1 as v1;

use super::*;
use crate::explain::{
    failure::{failure, invalid_manager},
    samples::{all, failed, gone, mute},
};
use crate::{
    client::{Level, RunnerStatus},
    fleet::health::{Doubt, Missing, ProofLimit, Wanted},
    fleet::receipt::NoReceipt,
    manager::InvalidManager,
};

fn seen(status: RunnerStatus) -> Option<Snapshot> {
    Some(status.into())
}

/// A client drains the runner, or has drained it.
fn drained(status: RunnerStatus) -> Snapshot {
    let by = "uid 0 (root), unix socket".to_owned();
    let drain = v1::Drain { id: "deploy-7".to_owned(), requested_by: by, ..v1::Drain::default() };
    let state = if status == RunnerStatus::Stopped { v1::State::Stopped } else { v1::State::Draining };
    v1::Status { state: state.into(), drain: Some(drain), ..v1::Status::default() }.into()
}

#[test]
fn failed_health_wait_errors_match_snapshot() {
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let not_healthy = |manager, cause: &Failure<NotHealthy>, others, id| {
        failure(&HealthWords { manager, others, id }, cause)
    };
    let problem = |waited, last, problem| failed(waited, Requested::No, last, Reason::Problem(problem));
    let timed_out = |last, missing| problem(minutes(10), last, NotHealthy::Missing(missing));
    let unreached = |error| failed(minutes(2), Requested::No, None, Reason::Unreached { attempts: 7, error });
    let running = || seen(RunnerStatus::Running);
    let reasons = || vec!["runner \"a\" (abc): GitLab rejects its token".to_owned()];
    let level = || Missing::Level { wanted: Level::Polling, found: Level::Ready, reasons: reasons() };
    let upstream = |wanted| Missing::Proof { wanted, limit: ProofLimit::Upstream };
    let no_server = |wanted| {
        let reasons =
            vec!["the runner has no HTTP server: set listen_address in its configuration".to_owned()];
        Missing::Proof { wanted, limit: ProofLimit::Level { max: Level::Process, reasons } }
    };
    let unknown = Missing::Gitlab(Doubt::Unknown { runner: 7, system_id: "s_1".to_owned() });
    let forbidden = Missing::Gitlab(Doubt::NoAnswer {
        runner: 7,
        instance: "https://gitlab.example".to_owned(),
        error: "the HTTP status was 403".to_owned(),
        is_permanent: true,
        is_refusal: true,
    });
    let required_version = || Wanted::Version("19.3.0".to_owned());
    let version =
        |found: Option<&str>| Missing::Version { wanted: "19.3.0".into(), found: found.map(str::to_owned) };
    let stopped = |reason: &str, start| {
        let mut last = Snapshot::from(RunnerStatus::Stopped);
        last.report.failure_reason = reason.to_owned();
        problem(minutes(1), Some(last), NotHealthy::Stopped { start })
    };
    let stopped_by_drain =
        |start| problem(minutes(1), Some(drained(RunnerStatus::Stopped)), NotHealthy::Stopped { start });
    let mut failing = Snapshot::from(RunnerStatus::Unknown(0));
    failing.report.failure_reason = "waiting\nThe last lines of the runner's log:\n  FATAL: no".to_owned();
    let interrupted = |requested, status, missing, lost: Option<ClientError>| {
        let reason = Reason::Interrupted(Some(NotHealthy::Missing(missing)));
        Failure { lost: lost.map(Box::new), ..failed(minutes(3), requested, seen(status), reason) }
    };
    let others = &other_managers(&["m1"], 2, false);
    insta::assert_snapshot!(all(vec![
        not_healthy("m2", &timed_out(seen(RunnerStatus::Unknown(0)), Missing::Running), others, "i-2"),
        not_healthy("m2", &timed_out(seen(RunnerStatus::InShutdown), Missing::Running), "", "i-2"),
        not_healthy("m2", &timed_out(running(), Missing::Time), "", "i-2"),
        not_healthy("m2", &timed_out(running(), level()), "", "i-2"),
        not_healthy("m2", &timed_out(running(), version(Some("19.2.0"))), "", "i-2"),
        not_healthy("m2", &timed_out(running(), version(None)), "", "i-2"),
        not_healthy("m2", &timed_out(None, Missing::Running), "", "i-2"),
        not_healthy("m2", &unreached(mute()), "", "i-2"),
        not_healthy("m2", &unreached(gone()), "", "i-2"),
        not_healthy("m2", &stopped("exit status 1", None), "", "i-2"),
        not_healthy(
            "m2",
            &stopped("exit status 1\nThe last lines of the runner's log:\n  FATAL: no", None),
            others,
            "i-2"
        ),
        not_healthy("m2", &timed_out(Some(failing), Missing::Running), others, "i-2"),
        not_healthy("m2", &stopped("", Some(Start::Requested)), "", "i-2"),
        not_healthy("m2", &stopped("", Some(Start::NotSupported)), "", "i-2"),
        not_healthy("m2", &stopped_by_drain(None), "", "i-2"),
        not_healthy("m2", &timed_out(Some(drained(RunnerStatus::Stopped)), Missing::Running), "", "i-2"),
        not_healthy("m2", &timed_out(Some(drained(RunnerStatus::InShutdown)), Missing::Running), "", "i-2"),
        not_healthy("m2", &timed_out(running(), Missing::Token { reasons: reasons() }), others, "i-2"),
        not_healthy("m2", &timed_out(running(), upstream(Wanted::Level(Level::Polling))), "", "i-2"),
        not_healthy("m2", &timed_out(running(), upstream(required_version())), "", "i-2"),
        not_healthy("m2", &timed_out(running(), no_server(Wanted::Level(Level::Polling))), "", "i-2"),
        not_healthy("m2", &timed_out(running(), no_server(required_version())), "", "i-2"),
        not_healthy("m2", &timed_out(running(), Missing::Gitlab(Doubt::Paused { runner: 7 })), "", "i-2"),
        not_healthy("m2", &timed_out(running(), unknown), "", "i-2"),
        not_healthy("m2", &timed_out(running(), forbidden), "", "i-2"),
        not_healthy(
            "m2",
            &interrupted(Requested::No, RunnerStatus::Stopped, Missing::Running, None),
            "",
            "i-2"
        ),
        not_healthy(
            "m2",
            &interrupted(Requested::Accepted, RunnerStatus::Stopped, Missing::Running, None),
            "",
            "i-2"
        ),
        not_healthy("m2", &interrupted(Requested::No, RunnerStatus::Running, level(), None), "", "i-2"),
        not_healthy(
            "m2",
            &interrupted(Requested::No, RunnerStatus::Running, level(), Some(gone())),
            "",
            "i-2"
        ),
    ]));
}

#[test]
fn health_warnings_match_snapshot() {
    let causes = [("no SSH user is configured".to_owned(), vec!["m1".to_owned(), "m2".to_owned()])];
    insta::assert_snapshot!(all(vec![
        unhealthy_at_refresh(&[("m1", "stopped", None), ("m2", "unreachable", Some("connection refused"))]),
        not_refreshed(&causes.into()),
        without_drain(&["m1", "m2"]),
        low_level(Level::Process),
        crate::explain::receipt::unconfirmed(&[
            ("m1", &NoReceipt::NoManagers),
            ("m2", &NoReceipt::Upstream),
            ("m3", &NoReceipt::NoFreeSlot { runner: 8 }),
        ]),
        invalid_manager(
            "m1",
            &InvalidManager { attribute: "address", problem: grit_ssh::AddressError::Missing }
        ),
    ]));
}

#[test]
fn refresh_problem_names_the_drain() {
    let found = |status| problem(&drained(status), &Missing::Running);
    let drain = "id \"deploy-7\", requested by uid 0 (root), unix socket";
    assert_eq!(found(RunnerStatus::Stopped), format!("a drain stopped the runner ({drain})"));
    assert_eq!(found(RunnerStatus::InShutdown), format!("the runner is draining ({drain})"));
}
