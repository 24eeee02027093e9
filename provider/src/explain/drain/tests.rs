use grit_proto::wrapper_v1 as v1;

use super::*;
use time::OffsetDateTime;

use crate::{
    client::{CancelledDrain, Offer, RunnerStatus, StatusReport},
    explain::{
        failure::failure,
        samples::{all, failed, gone, mute, refused_login},
    },
    fleet::{Reason, Requested, drain::NotDrained},
};

fn words(subject: Subject) -> DrainWords<'static> {
    DrainWords {
        manager: "m1",
        subject,
        on_unreachable: OnUnreachable::Fail,
        identifier: "i-1",
        names_others: false,
        offer: None,
        others: "",
    }
}

fn hours(n: u64) -> Duration {
    Duration::from_secs(3600 * n)
}

#[test]
fn failed_drain_errors_match_snapshot() {
    let last = || Some(RunnerStatus::InShutdown.into());
    let timed_out = |requested, forceful| {
        failed(hours(3), requested, last(), Reason::Problem(NotDrained::TimedOut { forceful }))
    };
    let unreached =
        |requested, error| failed(hours(1), requested, None, Reason::Unreached { attempts: 12, error });
    let interrupted = |requested, last| failed(hours(2), requested, last, Reason::Interrupted(None));
    let replaced = Reason::Problem(NotDrained::Replaced { pid: "4711".to_owned() });
    let drain = words(Subject::Drain);
    let command = |instances: &[&str], is_alone| {
        let instances = instances.iter().map(|id| (*id).to_owned()).collect();
        Offer::Command { instances, is_alone }
    };
    let (one, all_of_run) = (&command(&["i-1"], false), &command(&["i-1", "i-2", "i-3"], true));
    let elsewhere = &Offer::InErrorOf("m3".to_owned());
    let offering = |offer| DrainWords { offer: Some(offer), ..drain };
    let assuming = DrainWords { on_unreachable: OnUnreachable::AssumeTerminated, ..drain };
    let cancelled = |by: &str, at| {
        let cancelled = CancelledDrain { id: "m1@10.0.0.7#0a1b2c3d".to_owned(), by: by.to_owned(), at };
        failed(hours(1), Requested::Accepted, None, Reason::Problem(NotDrained::Cancelled(cancelled)))
    };
    let unproved = Reason::Problem(NotDrained::NetworkUnproved { attempts: 12, error: gone() });
    insta::assert_snapshot!(all(vec![
        failure(&drain, &timed_out(Requested::Accepted, false)),
        failure(&drain, &timed_out(Requested::Accepted, true)),
        failure(&drain, &timed_out(Requested::Accepted, true)),
        failure(&drain, &unreached(Requested::Accepted, mute())),
        failure(&drain, &unreached(Requested::Perhaps, mute())),
        failure(&offering(one), &unreached(Requested::No, mute())),
        failure(&offering(all_of_run), &unreached(Requested::No, gone())),
        failure(&offering(elsewhere), &unreached(Requested::No, gone())),
        failure(&drain, &unreached(Requested::No, refused_login())),
        failure(&DrainWords { offer: Some(one), ..assuming }, &unreached(Requested::No, mute())),
        failure(
            &DrainWords { offer: Some(one), ..assuming },
            &failed(hours(1), Requested::No, None, unproved)
        ),
        failure(
            &DrainWords { on_unreachable: OnUnreachable::Confirmed, ..drain },
            &unreached(Requested::No, refused_login())
        ),
        failure(&drain, &cancelled("uid 1000 (deploy), unix socket", Some(OffsetDateTime::UNIX_EPOCH))),
        failure(&drain, &cancelled("", None)),
        failure(&assuming, &unreached(Requested::Accepted, gone())),
        failure(&drain, &interrupted(Requested::Accepted, last())),
        failure(&drain, &interrupted(Requested::Perhaps, last())),
        failure(&drain, &interrupted(Requested::No, None)),
        failure(&drain, &failed(hours(1), Requested::Accepted, None, replaced)),
        no_target("m1@10.0.0.7#0a1b2c3d", "runner_manager", "it has no value", "m1@10.0.0.7#0a1b2c3d"),
    ]));
}

/// A drain that makes no progress, and the reason is known on the host.
#[test]
fn timeout_reports_problems_of_the_drain() {
    let reasons = ["the runner is draining", "the runner's process is suspended", "it was refused"];
    let reasons = reasons.map(str::to_owned).into();
    let health = v1::Health { reasons, jobs: Some(3), ..v1::Health::default() };
    let state = v1::State::Draining.into();
    let last = v1::Status { state, health: Some(health), ..v1::Status::default() }.into();
    let problem = Reason::Problem(NotDrained::TimedOut { forceful: false });
    let cause = failed(hours(3), Requested::Accepted, Some(last), problem);
    let error = all(vec![failure(&words(Subject::Drain), &cause)]);
    let reported = "Last status: `draining`, 3 jobs left. The wrapper reports: the runner's process is \
                    suspended; it was refused. The runner is still draining on the host.";
    assert!(error.contains(reported), "{error}");
}

#[test]
fn failed_shutdown_errors_match_snapshot() {
    let problem = |requested, last, problem| failed(hours(3), requested, last, Reason::Problem(problem));
    let last = Some(RunnerStatus::InShutdown.into());
    let timed_out = problem(Requested::Accepted, last, NotDrained::TimedOut { forceful: false });
    let unreached = Reason::Unreached { attempts: 12, error: gone() };
    let unreached = failed(hours(1), Requested::No, None, unreached);
    let offer = Offer::Command { instances: vec!["i-1".to_owned()], is_alone: false };
    let interrupted = failed(hours(2), Requested::Accepted, None, Reason::Interrupted(None));
    let bad = Snapshot {
        report: StatusReport { status: RunnerStatus::Stopped, failure_reason: "exit status 1".to_owned() },
        detail: None,
    };
    insta::assert_snapshot!(all(vec![
        failure(&words(Subject::ShutdownUpdate), &timed_out),
        failure(&DrainWords { offer: Some(&offer), ..words(Subject::ShutdownCreate) }, &unreached),
        failure(&words(Subject::ShutdownCreate), &interrupted),
        forced("m1", hours(3), &[], Subject::ShutdownCreate),
        bad_end("m1", &bad, false, Subject::ShutdownCreate).unwrap(),
    ]));
}

#[test]
fn failed_drain_action_errors_match_snapshot() {
    let last = || Some(RunnerStatus::InShutdown.into());
    let timed_out = |forceful| {
        let problem = Reason::Problem(NotDrained::TimedOut { forceful });
        failed(hours(1), Requested::Accepted, last(), problem)
    };
    let interrupted = |requested, last| failed(hours(1), requested, last, Reason::Interrupted(None));
    let not_drained = |cause| failure(&DrainWords::of_action("m1"), &cause);
    let unreached =
        |requested| failed(hours(1), requested, None, Reason::Unreached { attempts: 12, error: gone() });
    insta::assert_snapshot!(all(vec![
        not_drained(unreached(Requested::No)),
        not_drained(unreached(Requested::Perhaps)),
        not_drained(timed_out(false)),
        not_drained(timed_out(true)),
        not_drained(interrupted(Requested::No, None)),
        not_drained(interrupted(Requested::Accepted, last())),
    ]));
}

fn planned_drain(mode: Mode, on_timeout: OnTimeout, health_ends: bool) -> Option<Problem> {
    let unknown_instance = mode == Mode::Forceful;
    planned("m1", "10.0.0.7", &Planned { mode, timeout: hours(3), on_timeout, health_ends, unknown_instance })
}

#[test]
fn plan_of_a_usual_rollout_has_no_warning() {
    assert_eq!(planned_drain(Mode::Graceful, OnTimeout::Fail, false), None);
}

#[test]
fn lost_result_or_open_request_is_not_clean() {
    let warning = |outcome: v1::DrainOutcome, open_requests| {
        let ended = v1::Status {
            state: v1::State::Stopped.into(),
            drain: Some(v1::Drain { outcome: outcome.into(), open_requests, ..v1::Drain::default() }),
            exit: Some(v1::Exit { how: Some(v1::exit::How::Code(0)), killed: false }),
            ..v1::Status::default()
        };
        bad_end("m1", &ended.into(), false, Subject::Drain).map(|warning| all(vec![warning]))
    };
    assert_eq!(warning(v1::DrainOutcome::Clean, Some(0)), None);
    let lost = warning(v1::DrainOutcome::ResultsLost, None).unwrap();
    assert!(
        lost.contains("the runner may have given up reporting the end of at least one job to GitLab"),
        "{lost}"
    );
    for (open, requests) in [(Some(1), "1 job request was"), (Some(3), "3 job requests were")] {
        let lost = warning(v1::DrainOutcome::OpenRequests, open).unwrap();
        let wanted =
            format!("{requests} open when the runner received SIGQUIT. If GitLab had assigned a job");
        assert!(lost.contains(&wanted), "{lost}");
    }
}

#[test]
fn drain_warnings_match_snapshot() {
    let mut failed = Snapshot::from(RunnerStatus::Stopped);
    failed.report.failure_reason = "exit status 1\nThe last lines of the log".to_owned();
    insta::assert_snapshot!(all(vec![
        assumed_terminated("m1", 12, Duration::from_secs(75), &gone(), OnUnreachable::Confirmed),
        assumed_terminated("m1", 1, Duration::from_secs(5), &gone(), OnUnreachable::AssumeTerminated),
        forced("m1", hours(3), &(1..=52).collect::<Vec<_>>(), Subject::Drain),
        bad_end("m1", &failed, false, Subject::Drain).unwrap(),
        exit_unseen("m1", Subject::Drain),
        superseded("m1", "i-1"),
        instance_id_twice("m1", "i-1"),
        assumed_without_target("m1", "i-1"),
        address_is_used("m1", "mgr-1:22", "i-1", "i-2"),
        assumed_at_used_address("m1", "i-1"),
        planned_drain(Mode::Graceful, OnTimeout::Fail, true).unwrap(),
        planned_drain(Mode::Graceful, OnTimeout::Force, false).unwrap(),
        planned_drain(Mode::Forceful, OnTimeout::Force, true).unwrap(),
    ]));
    assert_eq!(bad_end("m1", &RunnerStatus::Stopped.into(), false, Subject::Drain), None);
}
