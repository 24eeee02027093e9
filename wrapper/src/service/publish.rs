//! The supervisor's states in the words of each API.

use std::time::{Duration, SystemTime};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{self as v1, exit::How},
};
use tokio::time::Instant;

use crate::{
    health::{Health, Level},
    process::Exit,
    supervisor::{DrainOutcome, End, LastLines, Mode, Phase, State, Stop, Supervision},
    wall,
};

/// The id of drains that came through upstream's API.
pub(super) const UPSTREAM: &str = "upstream";

/// Upstream's status and failure reason for a state.
pub(super) fn upstream(supervision: &Supervision) -> (Status, String) {
    let status = match &supervision.state {
        // Nothing is known to run yet. Never `stopped`: a child may still come.
        State::Idle | State::Starting { stop: None } => Status::Unknown,
        // The child that comes will be stopped at once, and will take no job.
        State::Starting { stop: Some(_) } => Status::InShutdown,
        // None runs, and one will. Not `stopped`: that is final.
        State::Backoff { .. } => Status::Unknown,
        State::Running { .. } => Status::Running,
        // Held, draining, forced or killed: all will end, and none has.
        State::Stopping { .. } => Status::InShutdown,
        State::Exited { .. } => Status::Stopped,
    };
    (status, failure(supervision))
}

/// Everything that our own API tells.
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
            format!("waiting to start the runner again after {times} failures in a row; the last: {why}")
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
        text.push_str("\nThe last lines of the runner's log:");
        for line in lines.iter() {
            text.push_str("\n  ");
            text.push_str(line);
        }
    }
    text
}

fn own_state(state: &State) -> v1::State {
    match state {
        State::Idle => v1::State::Idle,
        State::Starting { .. } => v1::State::Starting,
        State::Running { .. } => v1::State::Running,
        State::Stopping { phase, .. } => match phase {
            // That SIGQUIT is still held shows in `drain.signalled`.
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
        End::SpawnFailed(why) => (How::SpawnError(why.to_string()), false),
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
    // A goal of no rung at all is one that is not known yet.
    let goal = if health.goal == Level::None { v1::Level::Unspecified } else { rung(health.goal) };
    v1::Health {
        level: rung(health.level).into(),
        goal: goal.into(),
        reasons: health.reasons,
        runner_version: health.version,
        runner_revision: health.revision,
        process_state: health.process_state,
        sections: health.sections.map(number),
        polling_sections: health.polling_sections.map(number),
        jobs: health.jobs.map(number),
        oldest_job: health
            .oldest
            .map(|oldest| v1::OldestJob { age: duration(oldest.age()), stage: oldest.stage }),
    }
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
        asked_at: Some(timestamp(stop.asked)),
        deadline: deadline.map(timestamp),
        signalled,
        outcome: stop.outcome.map_or(v1::DrainOutcome::Unspecified, outcome).into(),
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

/// To the millisecond: below that, two readings of one moment differ.
fn timestamp(moment: Instant) -> prost_types::Timestamp {
    let since = wall::time(moment).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    prost_types::Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_millis() * 1_000_000).unwrap_or_default(),
    }
}
