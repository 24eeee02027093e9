//! From the messages of `grit.wrapper.v1` to the status.

use std::time::{Duration, SystemTime};

use grit_proto::wrapper_v1 as v1;

use crate::{
    daemon::{
        health::Level,
        status::{Drain, Exit, HealthStatus, How, Job, JobRouter, OldestJob, Registration, Status},
    },
    supervise::{Mode, RunnerState, StopOutcome},
};

/// A message of a newer wrapper has a value that this version does not know.
#[derive(Debug)]
pub(super) struct UnknownValue;

pub(super) fn status(status: v1::Status) -> Result<Status, UnknownValue> {
    Ok(Status {
        state: inverse(&RunnerState::ALL, status.state()).ok_or(UnknownValue)?,
        pid: status.pid,
        started_at: time(status.started_at),
        exit: status.exit.map(exit),
        failure_reason: status.failure_reason,
        restarts: status.restarts,
        crash_loop: status.crash_loop,
        health: status.health.map(health).transpose()?.unwrap_or_default(),
        drain: status.drain.map(drain).transpose()?,
        last_drain: status.last_drain.map(drain).transpose()?,
        shutting_down: status.shutting_down,
        wrapper_version: status.wrapper_version,
        registrations: status.registrations.into_iter().map(registration).collect(),
        reading_log: status.reading_log,
    })
}

/// The value with this message; the inverse of the wrapper's conversion.
fn inverse<T: Copy, M: From<T> + PartialEq + Copy>(all: &[T], message: M) -> Option<T> {
    all.iter().copied().find(|known| M::from(*known) == message)
}

fn exit(exit: v1::Exit) -> Exit {
    use v1::exit::How as Wire;
    let how = match exit.how {
        Some(Wire::Code(code)) => How::Code(code),
        Some(Wire::Signal(signal)) => How::Signal(signal),
        Some(Wire::NeverStarted(is_true)) => How::NeverStarted(is_true),
        Some(Wire::SpawnError(why)) => How::SpawnError(why),
        Some(Wire::Unknown(_)) | None => How::Unknown(true),
    };
    Exit { how, killed: exit.killed }
}

fn health(health: v1::Health) -> Result<HealthStatus, UnknownValue> {
    Ok(HealthStatus {
        level: inverse(&Level::ALL, health.level()).ok_or(UnknownValue)?,
        level_max: inverse(&Level::ALL, health.level_max()),
        reasons: health.reasons,
        unbound: false,
        runner_version: health.runner_version,
        runner_revision: health.runner_revision,
        process_state: health.process_state,
        sections: health.sections,
        polling_sections: health.polling_sections,
        rejected_sections: health.rejected_sections,
        jobs: health.jobs,
        oldest_job: health
            .oldest_job
            .map(|oldest| OldestJob { age: duration(oldest.age), stage: oldest.stage }),
        jobs_succeeded: health.jobs_succeeded,
        jobs_failed: health.jobs_failed,
        concurrent: health.concurrent,
        verified: health.verified,
        job_router: health.job_router.map(|router| JobRouter {
            circuit_breaker: router.circuit_breaker,
            requests: router.requests,
            fallbacks: router.fallbacks,
        }),
        worker_groups: health.worker_groups,
        last_poll_at: None,
    })
}

fn registration(registration: v1::Registration) -> Registration {
    Registration {
        url: registration.url,
        system_id: registration.system_id,
        runner_ids: registration.runner_ids,
        sections_without_id: registration.sections_without_id,
    }
}

fn drain(drain: v1::Drain) -> Result<Drain, UnknownValue> {
    let mode = inverse(&[Mode::Graceful, Mode::Forceful], drain.mode()).ok_or(UnknownValue)?;
    let outcome = inverse(&StopOutcome::ALL, drain.outcome());
    Ok(Drain {
        id: drain.id,
        mode,
        reason: drain.reason,
        requested_at: time(drain.requested_at),
        requested_by: drain.requested_by,
        forced_by: drain.forced_by,
        deadline: time(drain.deadline),
        signalled: drain.signalled,
        outcome,
        open_requests: drain.open_requests,
        waits_for: Some(drain.waits_for).filter(|clause| !clause.is_empty()),
        exit: drain.exit.map(exit),
        graceful_until: None,
        progress_at: None,
    })
}

impl From<v1::Job> for Job {
    fn from(job: v1::Job) -> Self {
        Self {
            id: job.id,
            state: job.state,
            stage: job.stage,
            executor_stage: job.executor_stage,
            age: duration(job.age),
        }
    }
}

fn duration(duration: Option<prost_types::Duration>) -> Duration {
    duration.and_then(|duration| duration.try_into().ok()).unwrap_or_default()
}

fn time(time: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    time?.try_into().ok()
}
