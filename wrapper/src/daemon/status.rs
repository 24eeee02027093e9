//! The status of the runner and its wrapper: the message `Status` of the API. It is made here, from the supervisor's state and the health of the
//! runner, and so is its JSON. gRPC sends it, HTTP and the commands print it, and the metrics and systemd read it.

mod enums;
mod json;
mod lists;
mod text;

use std::time::{Duration, SystemTime};

use grit_proto::wrapper_v1::{
    CancelledDrain, Drain, DrainOutcome, DrainResponse, Exit, Health, Job, JobRouter, OldestJob,
    Registration, State as PublicState, Status, exit::How,
};
use prost_types::Timestamp;
use serde::ser::SerializeMap;

use self::{
    json::{Json, Object, all, seconds, some},
    lists::{registrations, worker_groups},
    text::{MAX_NAME, MAX_SPAWN_ERROR, shortened, shown_reasons},
};
pub(crate) use self::{
    json::{json, json_list, time_text},
    lists::job_list,
    text::{age_text, failure, line},
};
use crate::supervise::{
    Cancelled, ChildInfo, End, LastLines, Moment, PastStop, Phase, State, Stop, Supervision, process,
};
use crate::{
    runner::{self, Level, level_now, waits_for},
    text::names,
};

/// The current status.
pub(crate) fn status(supervision: &Supervision, health: &runner::Health) -> Status {
    let state = &supervision.state;
    let known = health.evidence_in(state);
    let child = state.child();
    let child = child.as_ref();
    let waits_for = match state {
        State::Stopping { phase, .. } => waits_for(phase, known.quit_problem),
        _ => None,
    };
    let drain = state.stop().map(|stop| Drain {
        waits_for: waits_for.unwrap_or_default(),
        ..drain(state, stop, known.is_quit_undelivered(supervision))
    });
    Status {
        state: enums::state(state.public()).into(),
        pid: child.map(ChildInfo::pid),
        process: child.map(|child| child.process.to_string()).unwrap_or_default(),
        boot_id: process::boot_id().map(|boot| boot.to_string()).unwrap_or_default(),
        started_at: child.map(|child| timestamp(child.started)),
        exit: match state {
            State::Backoff { end, .. } | State::Exited { end, .. } => Some(exit(end)),
            State::Idle | State::Starting { .. } | State::Running { .. } | State::Stopping { .. } => None,
        },
        failure_reason: failure(supervision),
        reading_log: supervision.last_lines == LastLines::Reading,
        restarts: supervision.restarts.count,
        crash_loop: supervision.is_crash_loop(),
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
        worker_groups: worker_groups(sections.unwrap_or_default()),
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

fn drain(state: &State, stop: &Stop, is_quit_undelivered: bool) -> Drain {
    let (deadline, signalled) = match state {
        State::Stopping { phase, .. } => match *phase {
            Phase::Holding { quit_sent_at, .. } | Phase::AwaitingGap { quit_sent_at, .. } => {
                (stop.deadline, quit_sent_at.is_some())
            }
            Phase::Draining { .. } => (stop.deadline, !is_quit_undelivered),
            Phase::Terminating { until, .. } => (Some(until), true),
            Phase::Spacing { .. } | Phase::Killed { .. } => (None, true),
        },
        State::Exited { .. } => (None, true),
        State::Idle | State::Starting { .. } | State::Running { .. } | State::Backoff { .. } => {
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
    Drain { exit: Some(exit(&past.end)), ..drain(&state, &past.stop, false) }
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

impl Object for Status {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        object.serialize_entry("state", &names::short(self.state().as_str_name()))?;
        object.serialize_entry("pid", &self.pid)?;
        object.serialize_entry("started_at", &time_text(self.started_at))?;
        object.serialize_entry("exit", &some(&self.exit))?;
        object.serialize_entry("failure_reason", &self.failure_reason)?;
        object.serialize_entry("restarts", &self.restarts)?;
        object.serialize_entry("crash_loop", &self.crash_loop)?;
        object.serialize_entry("health", &some(&self.health))?;
        object.serialize_entry("drain", &some(&self.drain))?;
        object.serialize_entry("last_drain", &some(&self.last_drain))?;
        object.serialize_entry("cancelled_drain", &some(&self.cancelled_drain))?;
        object.serialize_entry("shutting_down", &self.shutting_down)?;
        object.serialize_entry("wrapper_version", &self.wrapper_version)?;
        object.serialize_entry("registrations", &all(&self.registrations))
    }
}

impl Object for CancelledDrain {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        object.serialize_entry("id", &self.id)?;
        object.serialize_entry("cancelled_by", &self.cancelled_by)?;
        object.serialize_entry("cancelled_at", &time_text(self.cancelled_at))
    }
}

impl Object for Health {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        let level = |level: Level| (level != Level::Unspecified).then(|| names::short(level.as_str_name()));
        object.serialize_entry("level", &level(self.level()))?;
        object.serialize_entry("level_max", &level(self.level_max()))?;
        object.serialize_entry("reasons", &self.reasons)?;
        object.serialize_entry("runner_version", &self.runner_version)?;
        object.serialize_entry("runner_revision", &self.runner_revision)?;
        object.serialize_entry("process_state", &self.process_state)?;
        object.serialize_entry("sections", &self.sections)?;
        object.serialize_entry("polling_sections", &self.polling_sections)?;
        object.serialize_entry("rejected_sections", &self.rejected_sections)?;
        object.serialize_entry("jobs", &self.jobs)?;
        object.serialize_entry("oldest_job", &some(&self.oldest_job))?;
        object.serialize_entry("jobs_succeeded", &self.jobs_succeeded)?;
        object.serialize_entry("jobs_failed", &self.jobs_failed)?;
        object.serialize_entry("concurrent", &self.concurrent)?;
        object.serialize_entry("verified", &self.verified)?;
        object.serialize_entry("job_router", &some(&self.job_router))?;
        object.serialize_entry("worker_groups", &self.worker_groups)
    }
}

impl Object for OldestJob {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        object.serialize_entry("age_seconds", &seconds(self.age))?;
        object.serialize_entry("stage", &self.stage)
    }
}

impl Object for JobRouter {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        object.serialize_entry("circuit_breaker", &self.circuit_breaker)?;
        object.serialize_entry("requests", &self.requests)?;
        object.serialize_entry("fallbacks", &self.fallbacks)
    }
}

impl Object for Registration {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        object.serialize_entry("url", &self.url)?;
        object.serialize_entry("system_id", &self.system_id)?;
        object.serialize_entry("runner_ids", &self.runner_ids)?;
        object.serialize_entry("sections_without_id", &self.sections_without_id)
    }
}

impl Object for Exit {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        object.serialize_entry("how", &Json(self.how.as_ref().unwrap_or(&How::Unknown(true))))?;
        object.serialize_entry("killed", &self.killed)
    }
}

impl Object for How {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        match self {
            Self::Code(code) => object.serialize_entry("code", code),
            Self::Signal(signal) => object.serialize_entry("signal", signal),
            Self::NeverStarted(is_true) => object.serialize_entry("never_started", is_true),
            Self::SpawnError(why) => object.serialize_entry("spawn_error", why),
            Self::Unknown(is_true) => object.serialize_entry("unknown", is_true),
        }
    }
}

impl Object for Drain {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        let outcome = Some(self.outcome()).filter(|outcome| *outcome != DrainOutcome::Unspecified);
        object.serialize_entry("id", &self.id)?;
        object.serialize_entry("mode", &names::short(self.mode().as_str_name()))?;
        object.serialize_entry("reason", &self.reason)?;
        object.serialize_entry("requested_at", &time_text(self.requested_at))?;
        object.serialize_entry("requested_by", &self.requested_by)?;
        object.serialize_entry("forced_by", &self.forced_by)?;
        object.serialize_entry("deadline", &time_text(self.deadline))?;
        object.serialize_entry("signalled", &self.signalled)?;
        object.serialize_entry("outcome", &outcome.map(|outcome| names::short(outcome.as_str_name())))?;
        object.serialize_entry("open_requests", &self.open_requests)?;
        object.serialize_entry("waits_for", &Some(&self.waits_for).filter(|clause| !clause.is_empty()))?;
        object.serialize_entry("exit", &some(&self.exit))
    }
}

/// The status, and what the drain joined.
impl Object for DrainResponse {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        self.status.iter().try_for_each(|status| status.fields(object))?;
        object.serialize_entry("joined", &self.joined)?;
        object.serialize_entry("joined_id", &Some(&self.joined_id).filter(|id| !id.is_empty()))
    }
}

impl Object for Job {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        object.serialize_entry("id", &self.id)?;
        object.serialize_entry("state", &self.state)?;
        object.serialize_entry("stage", &self.stage)?;
        object.serialize_entry("executor_stage", &self.executor_stage)?;
        object.serialize_entry("age_seconds", &seconds(self.age))
    }
}

#[cfg(test)]
mod tests;
