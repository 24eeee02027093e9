//! Converts the supervisor's state into the messages of each API.

use std::time::{Duration, SystemTime};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{self as v1, exit::How},
};
use prost::Message;
use tokio::time::Instant;

use crate::{
    daemon::health::{Health, Job, Level},
    supervise::{
        DrainOutcome, End, LastLines, Mode, PastStop, Phase, State, Stop, Supervision, clock, process::Exit,
    },
};

/// A status stays below 64 KiB, whatever the runner writes, so that every client can read it.
///
/// Maximum number of reasons; the number of further reasons follows them.
const REASONS: usize = 20;
/// Maximum size of a reason in bytes.
const REASON: usize = 500;
/// Maximum size of a failure in bytes, including the last lines of the log.
const FAILURE: usize = 16 * 1024;
/// Maximum size of a job list in bytes: below 4 MiB, the default limit of gRPC clients.
const JOBS: usize = 3 * 1024 * 1024;
/// Maximum number of bytes before each message of a list.
const FRAME: usize = 4;
/// Maximum size of the error of a failed start in bytes.
const SPAWN_ERROR: usize = 2 * 1024;
/// Maximum size of a string from the runner, such as a version or a stage, in bytes.
const NAME: usize = 200;

/// Upstream's status and failure reason for a state.
pub(super) fn upstream(supervision: &Supervision) -> (Status, String) {
    let status = match &supervision.state {
        // Not `stopped`, because a child may still be started.
        State::Idle | State::Starting { stop: None } => Status::Unknown,
        // The child will be stopped immediately after its start, and accepts no job.
        State::Starting { stop: Some(_) } => Status::InShutdown,
        // Not `stopped`, which is final: a child will be started.
        State::Backoff { .. } => Status::Unknown,
        State::Running { .. } => Status::Running,
        // The child is stopping in all of these phases.
        State::Stopping { .. } => Status::InShutdown,
        State::Exited { .. } => Status::Stopped,
    };
    (status, failure(supervision))
}

/// The status of the `grit.wrapper.v1` API.
pub(super) fn own(supervision: &Supervision, health: &Health) -> v1::Status {
    let state = &supervision.state;
    v1::Status {
        state: own_state(state).into(),
        pid: state.child().map(|child| child.pid),
        started_at: state.child().map(|child| timestamp(child.started)),
        exit: match state {
            State::Backoff { end, .. } | State::Exited { end, .. } => Some(exit(end)),
            State::Idle | State::Starting { .. } | State::Running { .. } | State::Stopping { .. } => None,
        },
        failure_reason: failure(supervision),
        restarts: supervision.restarts,
        crash_loop: supervision.is_crash_loop(),
        health: Some(own_health(state, health)),
        drain: state.stop().map(|stop| drain(state, stop)),
        last_drain: supervision.last_stop.as_deref().map(last_drain),
        leaving: supervision.leaving,
        wrapper_version: env!("CARGO_PKG_VERSION").to_owned(),
        reading_log: supervision.last_lines == LastLines::Reading,
    }
}

pub(super) fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

fn failure(supervision: &Supervision) -> String {
    let mut text = match &supervision.state {
        State::Backoff { end, .. } => {
            let why = end.failure().unwrap_or_else(|| "exit status 0".to_owned());
            let times = supervision.failures;
            format!(
                "waiting to restart the runner after {times} consecutive failures; the last failure: {why}"
            )
        }
        State::Exited { end, .. } => end.failure().unwrap_or_default(),
        State::Idle | State::Starting { .. } | State::Running { .. } | State::Stopping { .. } => {
            String::new()
        }
    };
    if let LastLines::Read(lines) = &supervision.last_lines
        && !text.is_empty()
        && !lines.is_empty()
    {
        text.push_str("\nLast lines of the runner's log:");
        for line in lines.iter() {
            text.push_str("\n  ");
            text.push_str(line);
        }
    }
    shortened(&text, FAILURE)
}

/// The text, truncated to `limit` bytes.
fn shortened(text: &str, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= limit {
        return text.to_owned();
    }
    let most = limit.saturating_sub(MARK.len());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}{MARK}", &text[..end])
}

fn own_state(state: &State) -> v1::State {
    match state {
        State::Idle => v1::State::Idle,
        State::Starting { .. } => v1::State::Starting,
        State::Running { .. } => v1::State::Running,
        State::Stopping { phase, .. } => match phase {
            // `drain.signalled` shows whether SIGQUIT was sent.
            Phase::Holding { .. } | Phase::Draining { .. } => v1::State::Draining,
            Phase::Spacing { .. } | Phase::Terminating { .. } | Phase::Killed => v1::State::Forcing,
        },
        State::Backoff { .. } => v1::State::Backoff,
        State::Exited { .. } => v1::State::Stopped,
    }
}

fn exit(end: &End) -> v1::Exit {
    let (how, killed) = match end {
        End::NeverStarted => (How::NeverStarted(true), false),
        End::SpawnFailed(why) => (How::SpawnError(shortened(why, SPAWN_ERROR)), false),
        End::Exited { exit, killed, .. } => {
            let how = match *exit {
                Exit::Code(code) => How::Code(code),
                Exit::Signal(signal) => How::Signal(signal),
                Exit::Unknown => How::Unknown(true),
            };
            (how, *killed)
        }
    };
    v1::Exit { how: Some(how), killed }
}

fn own_health(state: &State, health: &Health) -> v1::Health {
    let health = health.of(state);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    // No maximum level means that it is not known yet.
    let goal = if health.goal == Level::None { v1::Level::Unspecified } else { rung(health.goal) };
    let name = |name: &Option<String>| name.as_deref().map(|name| shortened(name, NAME));
    v1::Health {
        level: rung(health.level).into(),
        goal: goal.into(),
        reasons: reasons(&health.reasons),
        runner_version: name(&health.version),
        runner_revision: name(&health.revision),
        process_state: name(&health.process_state),
        sections: health.sections.map(number),
        polling_sections: health.polling_sections.map(number),
        jobs: health.jobs.map(number),
        oldest_job: health.oldest.map(|oldest| v1::OldestJob {
            age: duration(oldest.age()),
            stage: shortened(&oldest.stage, NAME),
        }),
    }
}

/// Each section of a runner can have a separate reason, and a runner can have a thousand sections.
fn reasons(all: &[String]) -> Vec<String> {
    let mut reasons: Vec<_> = all.iter().take(REASONS).map(|reason| shortened(reason, REASON)).collect();
    if let Some(others @ 1..) = all.len().checked_sub(REASONS) {
        reasons.push(format!("and {others} more"));
    }
    reasons
}

fn rung(level: Level) -> v1::Level {
    match level {
        Level::None => v1::Level::None,
        Level::Process => v1::Level::Process,
        Level::Ready => v1::Level::Ready,
        Level::Polling => v1::Level::Polling,
    }
}

fn drain(state: &State, stop: &Stop) -> v1::Drain {
    let (deadline, signalled) = match state {
        State::Stopping { phase, .. } => match *phase {
            Phase::Holding { told, .. } => (stop.deadline, told.is_some()),
            Phase::Draining { .. } => (stop.deadline, true),
            Phase::Terminating { until } => (Some(until), true),
            Phase::Spacing { .. } | Phase::Killed => (None, true),
        },
        State::Exited { .. } => (None, true),
        State::Idle | State::Starting { .. } | State::Running { .. } | State::Backoff { .. } => {
            (stop.deadline, false)
        }
    };
    let mode = match stop.mode {
        Mode::Graceful => v1::Mode::Graceful,
        Mode::Forceful => v1::Mode::Forceful,
    };
    v1::Drain {
        id: stop.id.to_string(),
        mode: mode.into(),
        reason: stop.reason.to_string(),
        asked_at: Some(timestamp(stop.requested_at)),
        deadline: deadline.map(timestamp),
        signalled,
        outcome: stop.outcome.map_or(v1::DrainOutcome::Unspecified, outcome).into(),
        asked_by: stop.requested_by.to_string(),
        exit: None,
    }
}

fn outcome(outcome: DrainOutcome) -> v1::DrainOutcome {
    match outcome {
        DrainOutcome::Clean => v1::DrainOutcome::Clean,
        DrainOutcome::JobsAborted => v1::DrainOutcome::JobsAborted,
        DrainOutcome::Killed => v1::DrainOutcome::Killed,
        DrainOutcome::Failed => v1::DrainOutcome::Failed,
        DrainOutcome::Unknown => v1::DrainOutcome::Unknown,
        DrainOutcome::NoRunner => v1::DrainOutcome::NoRunner,
    }
}

/// The drain of the previous runner, and the exit of that runner.
fn last_drain(past: &PastStop) -> v1::Drain {
    let state = State::Exited { end: past.end.clone(), stop: None };
    v1::Drain { exit: Some(exit(&past.end)), ..drain(&state, &past.stop) }
}

/// The job list, oldest first, and the number of younger jobs that exceed its maximum size.
pub(super) fn jobs(mut jobs: Vec<Job>) -> v1::ListJobsResponse {
    jobs.sort_by_key(|job| std::cmp::Reverse(job.duration));
    let mut answer = v1::ListJobsResponse::default();
    let mut room = JOBS;
    for job in &jobs {
        let job = v1::Job {
            id: job.id(),
            state: shortened(&job.state, NAME),
            stage: shortened(&job.stage, NAME),
            executor_stage: shortened(&job.executor_stage, NAME),
            age: duration(job.duration),
        };
        let Some(left) = room.checked_sub(job.encoded_len() + FRAME) else { break };
        room = left;
        answer.jobs.push(job);
    }
    answer.left_out = u32::try_from(jobs.len() - answer.jobs.len()).unwrap_or(u32::MAX);
    answer
}

/// Rounded to milliseconds: below that, two readings of one instant differ.
fn timestamp(moment: Instant) -> prost_types::Timestamp {
    let since = clock::time(moment).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    prost_types::Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_millis() * 1_000_000).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{daemon::health::Oldest, supervise::ChildInfo};

    #[test]
    fn long_text_is_cut_at_char_boundary() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcdef", 5), "ab…");
        assert_eq!(shortened("ééééé", 8), "éé…");
    }

    #[test]
    fn status_with_longest_texts_is_below_64_kib() {
        let long = "\u{10ffff}".repeat(100_000);
        let child = ChildInfo { pid: 1, started: Instant::now() };
        let health = Health {
            reasons: vec![long.clone(); 1000],
            version: Some(long.clone()),
            revision: Some(long.clone()),
            process_state: Some(long.clone()),
            oldest: Some(Oldest { started: Instant::now(), stage: long.clone() }),
            child: Some(child),
            ..Health::default()
        };
        // The longest strings that a client may send.
        let text = |characters| Arc::from("\u{10ffff}".repeat(characters));
        let stop = Stop { reason: text(1000), ..Stop::new(&*text(200), Mode::Graceful) };
        let end = End::SpawnFailed(Arc::from(long.as_str()));
        for state in [
            State::Stopping { child, stop: stop.clone(), phase: Phase::Draining { since: Instant::now() } },
            State::Exited { end: end.clone(), stop: Some(stop.clone()) },
        ] {
            let supervision = Supervision {
                state,
                last_lines: LastLines::Read(Arc::from([long.clone()])),
                last_stop: Some(Arc::new(PastStop { stop: stop.clone(), end: end.clone() })),
                ..Supervision::default()
            };
            let status = own(&supervision, &health);
            assert!(status.encoded_len() < 64 * 1024, "{}", status.encoded_len());
        }
    }

    #[test]
    fn health_reasons_beyond_limit_are_counted() {
        let all: Vec<_> = (0..1000).map(|section| format!("section {section} does not poll")).collect();
        let told = reasons(&all);
        assert_eq!((told.len(), told[19].as_str(), told[20].as_str()), (21, &*all[19], "and 980 more"));
        assert_eq!(reasons(&all[..20]), all[..20]);
    }

    #[test]
    fn oldest_jobs_are_listed_others_are_counted() {
        let list = |count: usize, stage: &str| {
            let line = |number| {
                format!(
                    "url=https://gitlab.example/-/jobs/{number} state=running stage={stage} duration={number}s"
                )
            };
            crate::daemon::health::parse_jobs(&(1..=count).map(line).collect::<Vec<_>>().join("\n"))
        };
        let all = jobs(list(1100, "step_script"));
        assert_eq!((all.jobs.len(), all.left_out, all.jobs[0].id), (1100, 0, Some(1100)));
        let some = jobs(list(20_000, &"x".repeat(300)));
        assert!(some.encoded_len() <= JOBS + 16, "{}", some.encoded_len());
        assert!(some.left_out > 0 && some.jobs.len() + some.left_out as usize == 20_000);
        assert_eq!(some.jobs[0].id, Some(20_000));
    }
}
