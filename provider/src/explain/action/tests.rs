use super::*;
use crate::{
    client::{Level, RunnerStatus, Snapshot},
    explain::{
        drain::{Subject, not_drained as explain_drain},
        samples::{all, gone},
    },
    fleet::{
        drain::{Mode, NotDrained, Requested},
        health::Missing,
    },
};

fn refused(method: &'static str, message: &str) -> ClientError {
    let route = Box::new(crate::client::example_route());
    ClientError::Status { method, code: tonic::Code::FailedPrecondition, message: message.to_owned(), route }
}

fn seen(status: RunnerStatus) -> Option<Snapshot> {
    Some(status.into())
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn failed_drain_action_errors_match_snapshot() {
    let last = || seen(RunnerStatus::InShutdown);
    let timed_out = |mode, forced| NotDrained::TimedOut {
        waited: HOUR,
        requested: Requested::Accepted,
        mode,
        forced,
        last: last(),
    };
    let interrupted = |requested, last| NotDrained::Interrupted { waited: HOUR, requested, last };
    let not_drained = |name, failure| explain_drain(name, failure, "", None, Subject::Action);
    let unreached = |requested| NotDrained::Connect { attempts: 12, waited: HOUR, requested, error: gone() };
    insta::assert_snapshot!(all(vec![
        not_drained("m1", &unreached(Requested::No)),
        not_drained("m1", &unreached(Requested::Perhaps)),
        not_drained("m1", &timed_out(Mode::Graceful, false)),
        not_drained("m1", &timed_out(Mode::Graceful, true)),
        not_drained("m1", &interrupted(Requested::No, None)),
        not_drained("m1", &interrupted(Requested::Accepted, last())),
    ]));
}

#[test]
fn failed_start_errors_match_snapshot() {
    let stopped = |start| {
        let mut last = Snapshot::from(RunnerStatus::Stopped);
        last.report.failure_reason = "exit status 1".to_owned();
        NotHealthy::Stopped { waited: HOUR, last, start }
    };
    let level = Missing::Level { wanted: Level::Polling, reasons: vec!["no request yet".to_owned()] };
    let interrupted = |start_requested| NotHealthy::Interrupted {
        waited: HOUR,
        last: seen(RunnerStatus::Stopped),
        start_requested,
    };
    insta::assert_snapshot!(all(vec![
        not_started("m1", &NotHealthy::Connect { attempts: 7, waited: HOUR, error: gone() }),
        not_started(
            "m1",
            &NotHealthy::TimedOut { waited: HOUR, last: seen(RunnerStatus::Running), missing: level }
        ),
        not_started("m1", &NotHealthy::TimedOut { waited: HOUR, last: None, missing: Missing::Running }),
        not_started("m1", &stopped(Some(Start::Requested))),
        not_started("m1", &stopped(Some(Start::NotSupported))),
        not_started("m1", &NotHealthy::NotVerifiable { wanted: "level" }),
        not_started("m1", &interrupted(true)),
        not_started("m1", &interrupted(false)),
    ]));
}

#[test]
fn failed_cancel_errors_match_snapshot() {
    let late = refused("Cancel", "SIGQUIT was already sent to the runner");
    insta::assert_snapshot!(all(vec![
        not_cancelled("m1", &NotCancelled::Connect { attempts: 1, waited: HOUR, error: late }),
        not_cancelled("m1", &NotCancelled::Connect { attempts: 12, waited: HOUR, error: gone() }),
        not_cancelled("m1", &NotCancelled::TimedOut { waited: HOUR }),
        not_cancelled("m1", &NotCancelled::Interrupted { waited: HOUR, requested: true }),
        not_cancelled("m1", &NotCancelled::Interrupted { waited: HOUR, requested: false }),
        not_cancelled("m1", &NotCancelled::Exited { reason: String::new() }),
        not_cancelled("m1", &NotCancelled::NotSupported),
    ]));
}
