use std::sync::Arc;

use grit_proto::wrapper_v1::{self as v1, DrainOutcome, DrainResponse, Job, Level, Registration};
use prost::Message;
use serde_json::Value;

use super::*;
use crate::{
    runner::{Evidence, Oldest, RunnerConfig, Section, parse_jobs},
    supervise::{Mode, StopId},
};

#[test]
fn drain_of_a_signal_has_the_id_of_the_api() {
    assert_eq!(StopId::Signal.as_str(), grit_proto::SIGNAL_DRAIN);
}

#[test]
fn status_with_the_longest_texts_has_less_than_64_kib() {
    let long = "\u{10ffff}".repeat(100_000);
    let child = ChildInfo::example(1);
    let mut evidence = Evidence {
        child: Some(child),
        oldest: Some(Oldest { started: tokio::time::Instant::now(), stage: long.clone() }),
        ..Evidence::default()
    };
    let host = "x".repeat(200);
    let section = |number| Section {
        gitlab: Some(format!("https://{host}{}", number % 30)),
        id: Some(u64::MAX - number),
        ..Section::default()
    };
    let sections = (0..1000).map(section).collect();
    evidence.set_config(RunnerConfig { sections, ..RunnerConfig::default() });
    evidence.metrics.version = Some(long.clone());
    evidence.metrics.revision = Some(long.clone());
    evidence.metrics.process_state = Some(long.clone());
    let health = runner::Health { reasons: vec![long.clone(); 1000], evidence, ..Default::default() };
    // The longest texts that a client may send.
    let text = |characters| "\u{10ffff}".repeat(characters);
    let stop = Stop { reason: Arc::from(text(1000)), ..Stop::new(&*text(200), Mode::Graceful) };
    let end = End::SpawnFailed(Arc::from(long.as_str()));
    for state in [
        State::Running { child, reload_at: None },
        State::Stopping { child, stop: stop.clone(), phase: Phase::draining(Moment::now()) },
        State::Exited { end: end.clone(), stop: Some(stop.clone()) },
    ] {
        let supervision = Supervision {
            state,
            last_error: Some(Arc::from(long.as_str())),
            last_stop: Some(Arc::new(PastStop { stop: stop.clone(), end: end.clone() })),
            ..Supervision::default()
        };
        let status = status(None, &supervision, &health);
        assert!(status.encoded_len() < 64 * 1024, "{}", status.encoded_len());
    }
}

#[test]
fn job_list_has_oldest_jobs_and_counts_younger_jobs() {
    let list = |count: usize, stage: &str| {
        let line = |number| {
            format!(
                "url=https://gitlab.example/-/jobs/{number} state=running stage={stage} duration={number}s"
            )
        };
        job_list(parse_jobs(&(1..=count).map(line).collect::<Vec<_>>().join("\n")))
    };
    let all = list(1100, "step_script");
    assert_eq!((all.jobs.len(), all.left_out, all.jobs[0].id), (1100, 0, Some(1100)));
    let some = list(20_000, &"x".repeat(300));
    assert!(some.encoded_len() <= 3 * 1024 * 1024 + 16, "{}", some.encoded_len());
    assert!(some.left_out > 0 && some.jobs.len() + some.left_out as usize == 20_000);
    assert_eq!(some.jobs[0].id, Some(20_000));
}

/// The process of a runner can have exited, and its PID can be another process by now.
#[test]
fn process_identity_of_child_is_read_once() {
    let child = ChildInfo::example(std::process::id());
    let state = State::Running { child, reload_at: None };
    let status = status(None, &Supervision { state, ..Supervision::default() }, &runner::Health::default());
    let now = process::Identity::of(std::process::id()).unwrap();
    assert_eq!(status.process, child.process.to_string());
    assert_ne!(status.process, now.to_string());
}

/// Programs read it.
#[test]
fn status_json_matches_snapshot() {
    let at = |seconds| Some(Timestamp { seconds, nanos: 500_000_000 });
    let age = Some(prost_types::Duration { seconds: 61, nanos: 900_000_000 });
    let drain = |how| Drain {
        id: "deploy-7".to_owned(),
        mode: v1::Mode::Graceful.into(),
        requested_at: at(1_700_000_060),
        outcome: DrainOutcome::JobsAborted.into(),
        waits_for: "a gap".to_owned(),
        exit: Some(Exit { how, killed: true }),
        ..Drain::default()
    };
    let health = Health {
        level: Level::Polling.into(),
        level_max: Level::Working.into(),
        reasons: vec!["a".to_owned()],
        oldest_job: Some(OldestJob { age, stage: "step_script".to_owned() }),
        job_router: Some(JobRouter { circuit_breaker: "half_open".to_owned(), requests: 1, fallbacks: 2 }),
        ..Health::default()
    };
    let registration =
        Registration { url: "https://a".to_owned(), runner_ids: vec![1], ..Registration::default() };
    let status = Status {
        state: v1::State::Draining.into(),
        pid: Some(17),
        started_at: at(1_700_000_000),
        health: Some(health),
        drain: Some(drain(Some(How::SpawnError("b".to_owned())))),
        last_drain: Some(drain(Some(How::Unknown(true)))),
        cancelled_drain: Some(CancelledDrain {
            id: "deploy-6".to_owned(),
            cancelled_by: "uid 0, unix socket".to_owned(),
            cancelled_at: at(1_700_000_030),
        }),
        wrapper_version: "0.1.0".to_owned(),
        registrations: vec![registration],
        ..Status::default()
    };
    let response = DrainResponse { status: Some(status), joined: true, joined_id: String::new() };
    let expected: Value = serde_json::from_str(
        r#"{"state":"draining","pid":17,"started_at":"2023-11-14T22:13:20.5Z","exit":null,"failure_reason":"","restarts":0,"crash_loop":false,"health":{"level":"polling","level_max":"working","reasons":["a"],"runner_version":null,"runner_revision":null,"process_state":null,"sections":null,"polling_sections":null,"rejected_sections":null,"jobs":null,"oldest_job":{"age_seconds":61,"stage":"step_script"},
    "jobs_succeeded":null,"jobs_failed":null,"concurrent":null,"verified":null,"job_router":{"circuit_breaker":"half_open","requests":1,"fallbacks":2}},
    "drain":{"id":"deploy-7","mode":"graceful","reason":"","requested_at":"2023-11-14T22:14:20.5Z","requested_by":"","forced_by":"","deadline":null,"signalled":false,"outcome":"jobs_aborted","open_requests":null,"waits_for":"a gap","exit":{"how":{"spawn_error":"b"},
    "killed":true}},
    "last_drain":{"id":"deploy-7","mode":"graceful","reason":"","requested_at":"2023-11-14T22:14:20.5Z","requested_by":"","forced_by":"","deadline":null,"signalled":false,"outcome":"jobs_aborted","open_requests":null,"waits_for":"a gap","exit":{"how":{"unknown":true},
    "killed":true}},
    "cancelled_drain":{"id":"deploy-6","cancelled_by":"uid 0, unix socket","cancelled_at":"2023-11-14T22:13:50.5Z"},
    "shutting_down":false,"wrapper_version":"0.1.0","registrations":[{"url":"https://a","system_id":null,"runner_ids":[1],"sections_without_id":0}],"joined":true,"joined_id":null}"#,
    )
    .unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json(&response)).unwrap(), expected);
    assert_eq!(
        json(&[Job { age, ..Job::default() }]),
        "[{\"id\":null,\"state\":\"\",\"stage\":\"\",\"executor_stage\":\"\",\"age_seconds\":61}]\n"
    );
}

/// An NTP step sets the wall clock, but the wrapper measures its deadlines with the monotonic clock.
#[tokio::test(start_paused = true)]
async fn time_to_deadline_ignores_changes_of_the_wall_clock() {
    let child = ChildInfo::example(std::process::id());
    let hour = Duration::from_secs(3600);
    let now = Moment::now();
    for wall in [now.wall - hour, now.wall, now.wall + hour] {
        let until = Moment { at: now.at + Duration::from_secs(90), wall: wall + Duration::from_secs(90) };
        let stop = Stop { deadline: Some(until), ..Stop::new("d", Mode::Graceful) };
        let forced = Stop::new("d", Mode::Forceful);
        for (stop, phase) in [(stop, Phase::draining(now)), (forced, Phase::Terminating { until })] {
            let state = State::Stopping { child, stop, phase };
            let status =
                status(None, &Supervision { state, ..Supervision::default() }, &runner::Health::default());
            let left = status.drain.and_then(|drain| drain.until_deadline);
            assert_eq!(left, Some(prost_types::Duration { seconds: 90, nanos: 0 }), "{wall:?}");
        }
    }
}
