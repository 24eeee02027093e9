//! The status of the runner and its wrapper: the message `Status` of the API. It is made here, from the supervisor's state and the health of the
//! runner. gRPC sends it, HTTP and the commands print it, and the metrics and systemd read it.

mod enums;
mod lists;
mod text;

use std::time::{Duration, SystemTime};

use grit_proto::wrapper_v1::{
    CancelledDrain, Drain, Exit, Health, JobRouter, OldestJob, State as PublicState, Status, exit::How,
};
use prost_types::Timestamp;
use serde::Serialize;

pub(crate) use self::{
    lists::job_list,
    text::{age_text, failure, line},
};
use self::{
    lists::registrations,
    text::{MAX_NAME, MAX_SPAWN_ERROR, shortened, shown_reasons},
};
use crate::runner::{self, Level, level_now, waits_for};
use crate::supervise::{
    Cancelled, ChildInfo, End, Moment, PastStop, Phase, State, Stop, Supervision,
    process::{self, BootId},
};

/// The current status, in this boot of the host.
pub(crate) fn status(boot: Option<BootId>, supervision: &Supervision, health: &runner::Health) -> Status {
    let state = &supervision.state;
    let child = state.child();
    let child = child.as_ref();
    let waits_for = match state {
        State::Stopping { phase, .. } => waits_for(phase),
        _ => None,
    };
    let drain =
        state.stop().map(|stop| Drain { waits_for: waits_for.unwrap_or_default(), ..drain(state, stop) });
    Status {
        state: enums::state(state.public()).into(),
        pid: child.map(ChildInfo::pid),
        process: child.map(|child| child.process.to_string()).unwrap_or_default(),
        boot_id: boot.map(|boot| boot.to_string()).unwrap_or_default(),
        started_at: child.map(|child| timestamp(child.started)),
        exit: match state {
            State::Backoff { end } | State::Exited { end, .. } => Some(exit(end)),
            State::Idle | State::Starting | State::Running { .. } | State::Stopping { .. } => None,
        },
        failure_reason: failure(supervision),
        restarts: supervision.restarts.count,
        crash_loop: supervision.is_crash_loop(Moment::now()),
        health: Some(self::health(supervision, health)),
        drain,
        last_drain: supervision.last_stop.as_deref().map(past_drain),
        cancelled_drain: supervision.cancelled.as_deref().map(cancelled_drain),
        shutting_down: supervision.leaving,
        wrapper_version: env!("CARGO_PKG_VERSION").to_owned(),
        registrations: health.evidence.config().map(registrations).unwrap_or_default(),
    }
}

/// The health in the current status.
pub(crate) fn health(supervision: &Supervision, health: &runner::Health) -> Health {
    let (level, reasons) = level_now(supervision, health);
    let known = health.evidence_in(&supervision.state);
    let (config, metrics) = (known.config(), &known.metrics);
    let sections = config.map(|config| config.sections.as_slice());
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let name = |name: &Option<String>| name.as_ref().map(|name| shortened(name, MAX_NAME));
    // Without a version these are not the metrics of a runner.
    let is_runner = metrics.version.is_some();
    let uses_router = sections.unwrap_or_default().iter().any(|section| section.uses_job_router);
    Health {
        level: level.into(),
        level_max: if known.child.is_some() { health.level_max } else { Level::Unspecified }.into(),
        reasons: shown_reasons(&reasons),
        runner_version: name(&metrics.version),
        runner_revision: name(&metrics.revision),
        process_state: name(&metrics.process_state),
        sections: sections.map(|sections| number(sections.len())),
        polling_sections: config.map(|config| number(known.polls.polling(config))),
        rejected_sections: config.map(|_| number(known.polls.rejected())),
        jobs: known.jobs.map(number),
        oldest_job: known.oldest.as_ref().map(|oldest| OldestJob {
            age: oldest.started.elapsed().try_into().ok(),
            stage: shortened(&oldest.stage, MAX_NAME),
        }),
        jobs_succeeded: is_runner.then_some(known.succeeded),
        jobs_failed: is_runner.then_some(metrics.jobs_failed),
        concurrent: config.and_then(|config| config.concurrent),
        verified: known.boot_verified(),
        job_router: metrics.router.filter(|_| uses_router).map(|router| JobRouter {
            circuit_breaker: router.circuit_breaker.name().to_owned(),
            requests: router.requests,
            fallbacks: router.fallbacks,
        }),
    }
}

fn exit(end: &End) -> Exit {
    let (how, killed) = match end {
        End::NeverStarted => (How::NeverStarted(true), false),
        End::SpawnFailed(why) => (How::SpawnError(shortened(why, MAX_SPAWN_ERROR)), false),
        End::Exited { exit: process::Exit::Code(code), killed, .. } => (How::Code(*code), *killed),
        End::Exited { exit: process::Exit::Signal(signal), killed, .. } => (How::Signal(*signal), *killed),
        End::Exited { exit: process::Exit::Unknown, killed, .. } => (How::Unknown(true), *killed),
    };
    Exit { how: Some(how), killed }
}

fn drain(state: &State, stop: &Stop) -> Drain {
    let (deadline, signalled) = match state {
        State::Stopping { phase, .. } => match *phase {
            Phase::AwaitingGap { quit_sent_at, .. } => (stop.deadline, quit_sent_at.is_some()),
            Phase::Draining { .. } => (stop.deadline, true),
            Phase::Terminating { until } => (Some(until), true),
            Phase::Spacing { .. } | Phase::Killed => (None, true),
        },
        State::Exited { .. } => (None, true),
        State::Idle | State::Starting | State::Running { .. } | State::Backoff { .. } => {
            (stop.deadline, false)
        }
    };
    // Of the clock that the deadline is measured with: no change of the wall clock moves it.
    let until_deadline = deadline.map(|deadline| deadline.since(Moment::now()));
    Drain {
        id: stop.id.to_string(),
        mode: enums::mode(stop.mode).into(),
        reason: stop.reason.to_string(),
        requested_at: Some(timestamp(stop.requested)),
        requested_by: stop.requested_by.to_string(),
        forced_by: stop.forced_by.to_string(),
        deadline: deadline.map(timestamp),
        until_deadline: until_deadline.and_then(|until| until.try_into().ok()),
        signalled,
        outcome: stop.outcome.map(enums::outcome).unwrap_or_default().into(),
        open_requests: match state {
            State::Stopping { phase: Phase::AwaitingGap { open, .. }, .. } => *open,
            // Without a confirmation, 0 is not known.
            _ => stop.open_requests.filter(|open| *open > 0 || !stop.unconfirmed),
        },
        waits_for: String::new(),
        exit: None,
    }
}

fn past_drain(past: &PastStop) -> Drain {
    let state = State::Exited { end: past.end.clone(), stop: None };
    Drain { exit: Some(exit(&past.end)), ..drain(&state, &past.stop) }
}

fn cancelled_drain(Cancelled { id, by, at }: &Cancelled) -> CancelledDrain {
    CancelledDrain { id: id.to_string(), cancelled_by: by.to_string(), cancelled_at: Some(timestamp(*at)) }
}

/// The runner has exited, or was never started, and is not restarted.
pub(crate) fn is_over(status: &Status) -> bool {
    matches!(status.state(), PublicState::Stopped | PublicState::Failed)
}

fn timestamp(moment: Moment) -> Timestamp {
    time(moment).into()
}

/// The wall time of a moment, in the whole milliseconds that the state file has.
pub(crate) fn time(moment: Moment) -> SystemTime {
    let since = moment.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

/// A message, or several ones, as a line of JSON.
pub(crate) fn json(message: &impl Serialize) -> String {
    // All keys are texts, and the serialization of a message does not fail.
    let text = serde_json::to_string(message).unwrap_or_default();
    format!("{text}\n")
}

#[cfg(test)]
mod tests;
