//! The status as messages of `grit.wrapper.v1`.

use std::time::{Duration, SystemTime};

use grit_proto::wrapper_v1 as v1;

use crate::{
    daemon::{
        health::Level,
        status::{Drain, Exit, HealthStatus, How, Job, Registration, Status},
    },
    supervise::{
        Mode, RunnerState, StopOutcome,
        process::{self, Identity},
    },
};

impl From<Status> for v1::Status {
    fn from(status: Status) -> Self {
        Self {
            state: v1::State::from(status.state).into(),
            pid: status.pid,
            started_at: status.started_at.map(timestamp),
            exit: status.exit.map(Into::into),
            failure_reason: status.failure_reason,
            restarts: status.restarts,
            crash_loop: status.crash_loop,
            health: Some(status.health.into()),
            drain: status.drain.map(Into::into),
            last_drain: status.last_drain.map(Into::into),
            shutting_down: status.shutting_down,
            wrapper_version: status.wrapper_version,
            process: status
                .pid
                .and_then(|pid| Identity::of(pid).ok())
                .map_or_else(String::new, |it| it.to_string()),
            boot_id: process::boot_id().map(|boot| boot.to_string()).unwrap_or_default(),
            reading_log: status.reading_log,
            registrations: status.registrations.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<RunnerState> for v1::State {
    fn from(state: RunnerState) -> Self {
        match state {
            RunnerState::Idle => Self::Idle,
            RunnerState::Starting => Self::Starting,
            RunnerState::Running => Self::Running,
            RunnerState::Draining => Self::Draining,
            RunnerState::Terminating => Self::Terminating,
            RunnerState::Backoff => Self::Backoff,
            RunnerState::Stopped => Self::Stopped,
            RunnerState::Failed => Self::Failed,
        }
    }
}

impl From<Exit> for v1::Exit {
    fn from(exit: Exit) -> Self {
        use v1::exit::How as Wire;
        let how = match exit.how {
            How::Code(code) => Wire::Code(code),
            How::Signal(signal) => Wire::Signal(signal),
            How::NeverStarted(is_true) => Wire::NeverStarted(is_true),
            How::SpawnError(why) => Wire::SpawnError(why),
            How::Unknown(is_true) => Wire::Unknown(is_true),
        };
        Self { how: Some(how), killed: exit.killed }
    }
}

impl From<Registration> for v1::Registration {
    fn from(registration: Registration) -> Self {
        Self {
            url: registration.url,
            system_id: registration.system_id,
            runner_ids: registration.runner_ids,
            sections_without_id: registration.sections_without_id,
        }
    }
}

impl From<HealthStatus> for v1::Health {
    fn from(health: HealthStatus) -> Self {
        Self {
            level: v1::Level::from(health.level).into(),
            level_max: health.level_max.map_or(v1::Level::Unspecified, v1::Level::from).into(),
            reasons: health.reasons,
            runner_version: health.runner_version,
            runner_revision: health.runner_revision,
            process_state: health.process_state,
            sections: health.sections,
            polling_sections: health.polling_sections,
            rejected_sections: health.rejected_sections,
            jobs: health.jobs,
            oldest_job: health
                .oldest_job
                .map(|oldest| v1::OldestJob { age: duration(oldest.age), stage: oldest.stage }),
            jobs_succeeded: health.jobs_succeeded,
            jobs_failed: health.jobs_failed,
            concurrent: health.concurrent,
            verified: health.verified,
            job_router: health.job_router.map(|router| v1::JobRouter {
                circuit_breaker: router.circuit_breaker,
                requests: router.requests,
                fallbacks: router.fallbacks,
            }),
            worker_groups: health.worker_groups,
        }
    }
}

impl From<Level> for v1::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::None => Self::None,
            Level::Process => Self::Process,
            Level::Ready => Self::Ready,
            Level::Polling => Self::Polling,
            Level::Working => Self::Working,
        }
    }
}

impl From<Mode> for v1::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Graceful => Self::Graceful,
            Mode::Forceful => Self::Forceful,
        }
    }
}

impl From<StopOutcome> for v1::DrainOutcome {
    fn from(outcome: StopOutcome) -> Self {
        match outcome {
            StopOutcome::Clean => Self::Clean,
            StopOutcome::JobsAborted => Self::JobsAborted,
            StopOutcome::ResultsLost => Self::ResultsLost,
            StopOutcome::Killed => Self::Killed,
            StopOutcome::Failed => Self::Failed,
            StopOutcome::Unknown => Self::Unknown,
            StopOutcome::NoRunner => Self::NoRunner,
            StopOutcome::OpenRequests => Self::OpenRequests,
        }
    }
}

impl From<Drain> for v1::Drain {
    fn from(drain: Drain) -> Self {
        let outcome = drain.outcome.map_or(v1::DrainOutcome::Unspecified, Into::into);
        Self {
            id: drain.id,
            mode: v1::Mode::from(drain.mode).into(),
            reason: drain.reason,
            requested_at: drain.requested_at.map(timestamp),
            until_deadline: drain.deadline.and_then(|deadline| {
                duration(deadline.duration_since(SystemTime::now()).unwrap_or_default())
            }),
            deadline: drain.deadline.map(timestamp),
            signalled: drain.signalled,
            outcome: outcome.into(),
            requested_by: drain.requested_by,
            exit: drain.exit.map(Into::into),
            forced_by: drain.forced_by,
            open_requests: drain.open_requests,
            waits_for: drain.waits_for.unwrap_or_default(),
        }
    }
}

impl From<Job> for v1::Job {
    fn from(job: Job) -> Self {
        Self {
            id: job.id,
            state: job.state,
            stage: job.stage,
            executor_stage: job.executor_stage,
            age: duration(job.age),
        }
    }
}

fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

fn timestamp(time: SystemTime) -> prost_types::Timestamp {
    time.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        daemon::{
            health::{Health, Oldest, parse_jobs},
            status::JobList,
        },
        supervise::{ChildInfo, End, LastLines, Moment, PastStop, Phase, State, Stop, StopId, Supervision},
    };

    #[test]
    fn drain_of_a_signal_has_the_id_of_the_api() {
        assert_eq!(StopId::Signal.as_str(), grit_proto::SIGNAL_DRAIN);
    }

    #[test]
    fn status_with_the_longest_texts_has_less_than_64_kib() {
        let long = "\u{10ffff}".repeat(100_000);
        let child = ChildInfo::example(1);
        let health = Health {
            reasons: vec![long.clone(); 1000],
            worker_groups: vec![long.clone(); 1000],
            version: Some(long.clone()),
            revision: Some(long.clone()),
            process_state: Some(long.clone()),
            oldest: Some(Oldest { started: Instant::now(), stage: long.clone() }),
            child: Some(child),
            ..Health::default()
        };
        // The longest texts that a client may send.
        let text = |characters| "\u{10ffff}".repeat(characters);
        let stop = Stop { reason: Arc::from(text(1000)), ..Stop::new(&*text(200), Mode::Graceful) };
        let end = End::SpawnFailed(Arc::from(long.as_str()));
        for state in [
            State::Stopping { child, stop: stop.clone(), phase: Phase::draining(Moment::now()) },
            State::Exited { end: end.clone(), stop: Some(stop.clone()) },
        ] {
            let supervision = Supervision {
                state,
                last_lines: LastLines::Read(Arc::from([long.clone()])),
                last_stop: Some(Arc::new(PastStop { stop: stop.clone(), end: end.clone() })),
                ..Supervision::default()
            };
            let status = v1::Status::from(Status::new(&supervision, &health));
            assert!(status.encoded_len() < 64 * 1024, "{}", status.encoded_len());
        }
    }

    #[test]
    fn job_list_has_the_oldest_jobs_and_counts_the_others() {
        let list = |count: usize, stage: &str| {
            let line = |number| {
                format!(
                    "url=https://gitlab.example/-/jobs/{number} state=running stage={stage} duration={number}s"
                )
            };
            let jobs = parse_jobs(&(1..=count).map(line).collect::<Vec<_>>().join("\n"));
            let JobList { jobs, left_out } = JobList::new(jobs);
            v1::ListJobsResponse { jobs: jobs.into_iter().map(Into::into).collect(), left_out }
        };
        let all = list(1100, "step_script");
        assert_eq!((all.jobs.len(), all.left_out, all.jobs[0].id), (1100, 0, Some(1100)));
        let some = list(20_000, &"x".repeat(300));
        assert!(some.encoded_len() <= 3 * 1024 * 1024 + 16, "{}", some.encoded_len());
        assert!(some.left_out > 0 && some.jobs.len() + some.left_out as usize == 20_000);
        assert_eq!(some.jobs[0].id, Some(20_000));
    }
}
