use std::time::Duration;

use super::*;
use crate::{
    client::{Level, RunnerStatus, Snapshot},
    explain::{
        drain::DrainWords,
        failure::failure,
        samples::{all, failed, gone},
    },
    fleet::{
        Reason,
        drain::NotDrained,
        health::{Missing, ProofLimit, Wanted},
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
    let timed_out = |forceful| {
        failed(HOUR, Requested::Accepted, last(), Reason::Problem(NotDrained::TimedOut { forceful }))
    };
    let interrupted = |requested, last| failed(HOUR, requested, last, Reason::Interrupted(None));
    let not_drained = |manager, cause: &Failure<NotDrained>| failure(&DrainWords::of_action(manager), cause);
    let unreached =
        |requested| failed(HOUR, requested, None, Reason::Unreached { attempts: 12, error: gone() });
    insta::assert_snapshot!(all(vec![
        not_drained("m1", &unreached(Requested::No)),
        not_drained("m1", &unreached(Requested::Perhaps)),
        not_drained("m1", &timed_out(false)),
        not_drained("m1", &timed_out(true)),
        not_drained("m1", &interrupted(Requested::No, None)),
        not_drained("m1", &interrupted(Requested::Accepted, last())),
    ]));
}

#[test]
fn failed_start_errors_match_snapshot() {
    let problem = |last, problem| failed(HOUR, Requested::No, last, Reason::Problem(problem));
    let stopped = |start| {
        let mut last = Snapshot::from(RunnerStatus::Stopped);
        last.report.failure_reason = "exit status 1".to_owned();
        problem(Some(last), NotHealthy::Stopped { start })
    };
    let level = Missing::Level {
        wanted: Level::Polling,
        found: Level::Ready,
        reasons: vec!["no request yet".to_owned()],
    };
    let interrupted =
        |requested| failed(HOUR, requested, seen(RunnerStatus::Stopped), Reason::Interrupted(None));
    let not_started = |cause| failure(&StartWords("m1"), &cause);
    insta::assert_snapshot!(all(vec![
        not_started(failed(HOUR, Requested::No, None, Reason::Unreached { attempts: 7, error: gone() })),
        not_started(problem(seen(RunnerStatus::Running), NotHealthy::Missing(level))),
        not_started(problem(seen(RunnerStatus::InShutdown), NotHealthy::Missing(Missing::Running))),
        not_started(problem(None, NotHealthy::Missing(Missing::Running))),
        not_started(stopped(Some(Start::Requested))),
        not_started(stopped(Some(Start::NotSupported))),
        not_started(problem(
            None,
            NotHealthy::Missing(Missing::Proof {
                wanted: Wanted::Level(Level::Polling),
                limit: ProofLimit::Upstream
            })
        )),
        not_started(interrupted(Requested::Accepted)),
        not_started(interrupted(Requested::No)),
    ]));
}

#[test]
fn failed_cancel_errors_match_snapshot() {
    let late = refused("Cancel", "SIGQUIT was already sent to the runner");
    let not_cancelled =
        |requested, reason| failure(&CancelWords("m1"), &failed(HOUR, requested, None, reason));
    let problem = |problem| not_cancelled(Requested::No, Reason::Problem(problem));
    insta::assert_snapshot!(all(vec![
        not_cancelled(Requested::No, Reason::Unreached { attempts: 1, error: late }),
        not_cancelled(Requested::No, Reason::Unreached { attempts: 12, error: gone() }),
        problem(NotCancelled::TimedOut),
        not_cancelled(Requested::Perhaps, Reason::Interrupted(None)),
        not_cancelled(Requested::No, Reason::Interrupted(None)),
        problem(NotCancelled::Exited),
        problem(NotCancelled::NotSupported),
    ]));
}
