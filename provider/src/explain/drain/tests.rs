use std::io;

use super::*;
use crate::explain::diagnostic::tests::all;
use crate::transport::ConnectionMethod;
use crate::{
    client::{
        Detail, DrainInfo, DrainOutcome, ExitKind, Level, RunnerEvidence, RunnerExit, RunnerStatus,
        StatusReport,
    },
    fleet::{PeerProblem, TooFewPeers},
    transport::{Cause, Phase, Route, TransportError},
};

/// The wrapper does not answer.
fn mute() -> ClientError {
    let limit = Duration::from_secs(10);
    ClientError::NoAnswer {
        method: "CheckStatus",
        limit,
        silent: false,
        route: Box::new(Route::example(ConnectionMethod::Direct)),
    }
}

/// Nothing listens there.
fn gone() -> ClientError {
    let cause = Cause::Network(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    TransportError::at(Phase::Tcp, Route::example(ConnectionMethod::Direct), cause).into()
}

fn hours(n: u64) -> Duration {
    Duration::from_secs(3600 * n)
}

#[test]
fn failed_drain_errors_match_snapshot() {
    let last = || Some(RunnerStatus::InShutdown.into());
    let timed_out = |requested, mode, forced| NotDrained::TimedOut {
        waited: hours(3),
        requested,
        mode,
        forced,
        last: last(),
    };
    let unreached =
        |requested, error| NotDrained::Connect { attempts: 12, waited: hours(1), requested, error };
    let interrupted = |requested, last| NotDrained::Interrupted { waited: hours(2), requested, last };
    let words = |failure| not_drained("m1", &failure, "i-1", None, Subject::Drain);
    insta::assert_snapshot!(all(vec![
        words(timed_out(Requested::Accepted, Mode::Graceful, false)),
        words(timed_out(Requested::Accepted, Mode::Graceful, true)),
        words(timed_out(Requested::Accepted, Mode::Forceful, false)),
        words(unreached(Requested::Accepted, mute())),
        words(unreached(Requested::Perhaps, mute())),
        words(unreached(Requested::No, mute())),
        words(unreached(Requested::No, gone())),
        not_drained(
            "m1",
            &unreached(Requested::No, mute()),
            "i-1",
            Some(AssumeSetting::Variable),
            Subject::Drain
        ),
        not_drained(
            "m1",
            &unreached(Requested::Accepted, gone()),
            "i-1",
            Some(AssumeSetting::Attribute),
            Subject::Drain
        ),
        words(interrupted(Requested::Accepted, last())),
        words(interrupted(Requested::Perhaps, last())),
        words(interrupted(Requested::No, None)),
        no_target("adopted#0a1b2c3d", "runner_manager", "it has no value", "adopted#0a1b2c3d"),
    ]));
}

fn detail() -> Detail {
    Detail {
        wrapper_version: "0.1.0".to_owned(),
        level: Level::None,
        level_max: None,
        reasons: vec![],
        runner_version: None,
        pid: None,
        started_at: None,
        jobs: None,
        oldest_job: None,
        drain: None,
        shutting_down: false,
        evidence: RunnerEvidence::default(),
        exit: None,
    }
}

/// A drain that makes no progress, and the reason is known on the host.
#[test]
fn timeout_reports_problems_of_the_drain() {
    let mut last = Snapshot::from(RunnerStatus::InShutdown);
    let reasons = ["the runner is draining", "the runner's process is suspended", "it was refused"];
    let reasons = reasons.map(str::to_owned).into();
    last.detail = Some(Box::new(Detail { reasons, jobs: Some(3), ..detail() }));
    let failure = NotDrained::TimedOut {
        waited: hours(3),
        requested: Requested::Accepted,
        mode: Mode::Graceful,
        forced: false,
        last: Some(last),
    };
    let error = all(vec![not_drained("m1", &failure, "i-1", None, Subject::Drain)]);
    let reported = "Last status: `in_shutdown`, 3 jobs left. The wrapper reports: the runner's process is \
                    suspended; it was refused. The runner is still draining.";
    assert!(error.contains(reported), "{error}");
}

#[test]
fn failed_shutdown_errors_match_snapshot() {
    let timed_out = NotDrained::TimedOut {
        waited: hours(3),
        requested: Requested::Accepted,
        mode: Mode::Graceful,
        forced: false,
        last: Some(RunnerStatus::InShutdown.into()),
    };
    let unreached =
        NotDrained::Connect { attempts: 12, waited: hours(1), requested: Requested::No, error: gone() };
    let interrupted =
        NotDrained::Interrupted { waited: hours(2), requested: Requested::Accepted, last: None };
    let failed = Snapshot {
        report: StatusReport { status: RunnerStatus::Stopped, failure_reason: "exit status 1".to_owned() },
        detail: None,
    };
    let peers = TooFewPeers { healthy: 0, wanted: 1, unhealthy: vec![] };
    let words = |failure, subject| not_drained("m1", &failure, "i-1", None, subject);
    insta::assert_snapshot!(all(vec![
        words(timed_out, Subject::ShutdownUpdate),
        words(unreached, Subject::ShutdownCreate),
        words(interrupted, Subject::ShutdownCreate),
        words(NotDrained::TooFewPeers { peers, requested: Requested::No }, Subject::ShutdownCreate),
        forced("m1", hours(3), Subject::ShutdownCreate),
        no_callback("m1", &NoCallback::Upstream, Subject::ShutdownUpdate),
        bad_end("m1", &failed, false, Subject::ShutdownCreate).unwrap(),
    ]));
}

fn planned_drain(mode: Mode, on_timeout: OnTimeout, unknown_instance: bool) -> Explained {
    planned("m1", "10.0.0.7", &Planned { mode, timeout: hours(3), on_timeout, unknown_instance })
}

#[test]
fn lost_result_of_a_job_is_no_clean_exit() {
    let drain = |outcome| DrainInfo {
        id: "deploy-7".to_owned(),
        reason: String::new(),
        requested_by: "uid 0 (root), unix socket".to_owned(),
        forceful: false,
        signalled: true,
        deadline: None,
        outcome: Some(outcome),
    };
    let warning = |outcome| {
        let exit = Some(RunnerExit { how: ExitKind::Code(0), killed: false });
        let mut ended = Snapshot::from(RunnerStatus::Stopped);
        ended.detail = Some(Box::new(Detail { drain: Some(drain(outcome)), exit, ..detail() }));
        bad_end("m1", &ended, false, Subject::Drain).map(|warning| all(vec![warning]))
    };
    assert_eq!(warning(DrainOutcome::Clean), None);
    let lost = warning(DrainOutcome::ResultsLost).unwrap();
    assert!(lost.contains("it could not report the end of at least one job to GitLab"), "{lost}");
}

#[test]
fn drain_warnings_match_snapshot() {
    let mut failed = Snapshot::from(RunnerStatus::Stopped);
    failed.report.failure_reason = "exit status 1\nThe last lines of the log".to_owned();
    insta::assert_snapshot!(all(vec![
        assumed_terminated("m1", 12, Duration::from_secs(75), &gone(), AssumeSetting::Variable),
        assumed_terminated("m1", 1, Duration::from_secs(5), &gone(), AssumeSetting::Attribute),
        forced("m1", hours(3), Subject::Drain),
        no_callback("m1", &NoCallback::Upstream, Subject::Drain),
        no_callback("m1", &NoCallback::Refused(mute()), Subject::Drain),
        bad_end("m1", &failed, false, Subject::Drain).unwrap(),
        superseded("m1", "i-1"),
        instance_id_twice("m1", "i-1"),
        assumed_without_target("m1", "i-1"),
        address_is_used("m1", "mgr-1:22", "i-1", "i-2"),
        assumed_at_used_address("m1", "i-1"),
        planned_drain(Mode::Graceful, OnTimeout::Fail, false),
        planned_drain(Mode::Graceful, OnTimeout::Force, false),
        planned_drain(Mode::Forceful, OnTimeout::Force, true),
    ]));
    assert_eq!(bad_end("m1", &RunnerStatus::Stopped.into(), false, Subject::Drain), None);
}

#[test]
fn too_few_peers_message_names_cause_per_peer() {
    let unhealthy = vec![
        ("m2".to_owned(), PeerProblem::Unreached(gone())),
        ("m3".to_owned(), PeerProblem::Status(RunnerStatus::InShutdown)),
        ("m4".to_owned(), PeerProblem::DrainedHere),
        ("m5".to_owned(), PeerProblem::AskedToDrain("deploy-7".to_owned())),
        ("m1".to_owned(), PeerProblem::Itself),
        ("m7".to_owned(), PeerProblem::Duplicate),
        ("m6".to_owned(), PeerProblem::NoAnswer(Duration::from_secs(30))),
    ];
    insta::assert_snapshot!(all(vec![too_few_peers(
        "m1",
        &TooFewPeers { healthy: 0, wanted: 1, unhealthy },
        Subject::Drain
    )]));
}
