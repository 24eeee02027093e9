//! Makes the status from the state of the supervisor and the health of the runner.

use std::time::{Duration, SystemTime};

use super::{Drain, Exit, HealthStatus, How, Job, JobList, JobRouter, OldestJob, Registration, Status};
use crate::{
    daemon::health::{self, Health, Level, QuitProblem, RunnerConfig},
    supervise::{ChildInfo, End, LastLines, Moment, PastStop, Phase, State, Stop, Supervision, process},
};

/// The texts are limited, so that a status has less than 64 KiB and every client can read it.
const MAX_TEXTS: usize = 20;
const MAX_TEXT: usize = 500;
/// The failure, with the last log lines.
const MAX_FAILURE: usize = 16 * 1024;
const MAX_SPAWN_ERROR: usize = 2 * 1024;
/// A text of the runner, such as its version.
const MAX_NAME: usize = 200;
const MAX_WORKER_GROUPS: usize = 100;
const MAX_INSTANCES: usize = 20;
const MAX_RUNNER_IDS: usize = 1000;
/// A list of jobs. gRPC clients accept 4 MiB by default.
const MAX_JOBS: usize = 3 * 1024 * 1024;
/// The size of a job in a gRPC message, without its texts.
const JOB_OVERHEAD: usize = 48;

impl Status {
    pub(crate) fn new(supervision: &Supervision, health: &Health) -> Self {
        let state = &supervision.state;
        let mut health = health.of(state);
        health.reasons.extend(supervision.refused_signal().map(|(signal, refused)| {
            format!("{signal} cannot be sent to the runner, trying again: {}", refused.error)
        }));
        health.reasons.extend(supervision.save_error.as_ref().map(|error| {
            format!(
                "the state file cannot be written: {error}; if this wrapper is killed, the next one does not know of the latest \
                 start or drain"
            )
        }));
        let registrations = health.config.as_deref().map(registrations).unwrap_or_default();
        let child = state.child();
        let is_quit_undelivered =
            supervision.is_quit_refused() || health.quit_problem == Some(QuitProblem::Pending);
        Self {
            state: state.public(),
            pid: child.map(|child| child.pid()),
            started_at: child.map(|ChildInfo { started, .. }| at(started)),
            exit: match state {
                State::Backoff { end, .. } | State::Exited { end, .. } => Some(Exit::new(end)),
                State::Idle | State::Starting { .. } | State::Running { .. } | State::Stopping { .. } => None,
            },
            failure_reason: failure(supervision),
            restarts: supervision.restarts.count,
            crash_loop: supervision.is_crash_loop(),
            drain: state.stop().map(|stop| Drain {
                waits_for: match state {
                    State::Stopping { phase, .. } => health::waits_for(phase, health.quit_problem),
                    _ => None,
                },
                ..Drain::new(state, stop, (health.fewer_jobs, is_quit_undelivered))
            }),
            health: HealthStatus::new(health),
            last_drain: supervision.last_stop.as_deref().map(Drain::past),
            shutting_down: supervision.leaving,
            wrapper_version: env!("CARGO_PKG_VERSION").to_owned(),
            registrations,
            reading_log: supervision.last_lines == LastLines::Reading,
        }
    }
}

/// The sections by GitLab instance. Two instances of one host with different paths are one.
fn registrations(config: &RunnerConfig) -> Vec<Registration> {
    let mut found: Vec<Registration> = Vec::new();
    let mut ids = 0;
    for section in &config.sections {
        let Some(url) = section.gitlab.as_deref().filter(|url| url.len() <= MAX_NAME) else { continue };
        let at = found.iter().position(|known| known.url == url).unwrap_or(found.len());
        if at == MAX_INSTANCES {
            continue;
        }
        if at == found.len() {
            let system_id = config.system_id.clone();
            let (url, runner_ids) = (url.to_owned(), Vec::new());
            found.push(Registration { url, system_id, runner_ids, sections_without_id: 0 });
        }
        match section.id.filter(|_| ids < MAX_RUNNER_IDS) {
            // A runner can have several sections.
            Some(id) if found[at].runner_ids.contains(&id) => {}
            Some(id) => {
                ids += 1;
                found[at].runner_ids.push(id);
            }
            None => found[at].sections_without_id += 1,
        }
    }
    found
}

impl Exit {
    fn new(end: &End) -> Self {
        let (how, killed) = match end {
            End::NeverStarted => (How::NeverStarted(true), false),
            End::SpawnFailed(why) => (How::SpawnError(shortened(why, MAX_SPAWN_ERROR)), false),
            End::Exited { exit, killed, .. } => {
                let how = match *exit {
                    process::Exit::Code(code) => How::Code(code),
                    process::Exit::Signal(signal) => How::Signal(signal),
                    process::Exit::Unknown => How::Unknown(true),
                };
                (how, *killed)
            }
        };
        Self { how, killed }
    }
}

impl HealthStatus {
    fn new(health: Health) -> Self {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let name = |name: Option<String>| name.map(|name| shortened(&name, MAX_NAME));
        Self {
            level: health.level,
            level_max: Some(health.level_max).filter(|level| *level > Level::None),
            reasons: texts(&health.reasons),
            unbound: !health.unbound.is_empty(),
            runner_version: name(health.version),
            runner_revision: name(health.revision),
            process_state: name(health.process_state),
            sections: health.sections.map(number),
            polling_sections: health.polling_sections.map(number),
            rejected_sections: health.rejected_sections.map(number),
            jobs: health.jobs.map(number),
            oldest_job: health
                .oldest
                .map(|oldest| OldestJob { age: oldest.age(), stage: shortened(&oldest.stage, MAX_NAME) }),
            jobs_succeeded: health.ended_jobs.map(|jobs| jobs.succeeded),
            jobs_failed: health.ended_jobs.map(|jobs| jobs.failed),
            concurrent: health.concurrent,
            verified: health.verified,
            job_router: health.job_router.map(|router| JobRouter {
                circuit_breaker: router.circuit_breaker.name().to_owned(),
                requests: router.requests,
                fallbacks: router.fallbacks,
            }),
            worker_groups: health
                .worker_groups
                .iter()
                .take(MAX_WORKER_GROUPS)
                .map(|group| shortened(group, MAX_NAME))
                .collect(),
            last_poll_at: health.last_poll.map(at),
        }
    }
}

impl Drain {
    fn new(state: &State, stop: &Stop, (fewer_jobs, is_quit_undelivered): (Option<Moment>, bool)) -> Self {
        let requested = stop.requested;
        let (deadline, signalled, progress) = match state {
            State::Stopping { phase, .. } => match *phase {
                Phase::Holding { quit_sent_at, .. } => (stop.deadline, quit_sent_at.is_some(), quit_sent_at),
                Phase::AwaitingGap { quit_sent_at, .. } => {
                    (stop.deadline, quit_sent_at.is_some(), quit_sent_at)
                }
                Phase::Draining { .. } if is_quit_undelivered => (stop.deadline, false, None),
                Phase::Draining { since, .. } => (stop.deadline, true, Some(since)),
                Phase::Terminating { until, .. } => (Some(until), true, None),
                Phase::Spacing { .. } | Phase::Killed { .. } => (None, true, None),
            },
            State::Exited { .. } => (None, true, None),
            State::Idle | State::Starting { .. } | State::Running { .. } | State::Backoff { .. } => {
                (stop.deadline, false, None)
            }
        };
        let progress = [progress, fewer_jobs].into_iter().flatten().fold(requested, Moment::max);
        Self {
            id: stop.id.to_string(),
            mode: stop.mode,
            reason: stop.reason.to_string(),
            requested_at: Some(at(requested)),
            requested_by: stop.requested_by.to_string(),
            forced_by: stop.forced_by.to_string(),
            deadline: deadline.map(at),
            signalled,
            outcome: stop.outcome,
            open_requests: match state {
                State::Stopping { phase: Phase::AwaitingGap { open, .. }, .. } => *open,
                _ => stop.open_requests,
            },
            waits_for: None,
            exit: None,
            graceful_until: stop.deadline.map(at),
            progress_at: matches!(state, State::Stopping { .. }).then(|| at(progress)),
        }
    }

    fn past(past: &PastStop) -> Self {
        let state = State::Exited { end: past.end.clone(), stop: None };
        Self { exit: Some(Exit::new(&past.end)), ..Self::new(&state, &past.stop, (None, false)) }
    }
}

impl JobList {
    /// As many of the oldest jobs as a gRPC message can have.
    pub(crate) fn new(mut jobs: Vec<health::Job>) -> Self {
        jobs.sort_by_key(|job| std::cmp::Reverse(job.duration));
        let total = jobs.len();
        let mut size = 0;
        let fits = |job: &Job| {
            size += JOB_OVERHEAD + job.state.len() + job.stage.len() + job.executor_stage.len();
            size <= MAX_JOBS
        };
        let jobs: Vec<_> = jobs.iter().map(Job::new).take_while(fits).collect();
        let left_out = u32::try_from(total - jobs.len()).unwrap_or(u32::MAX);
        Self { jobs, left_out }
    }
}

impl Job {
    fn new(job: &health::Job) -> Self {
        Self {
            id: job.id(),
            state: shortened(&job.state, MAX_NAME),
            stage: shortened(&job.stage, MAX_NAME),
            executor_stage: shortened(&job.executor_stage, MAX_NAME),
            age: job.duration,
        }
    }
}

/// The failure of the runner, with its last log lines. Empty without a failure.
pub(crate) fn failure(supervision: &Supervision) -> String {
    let mut text = match &supervision.state {
        State::Backoff { end, .. } => {
            let why = end.failure().unwrap_or_else(|| "exit status 0".to_owned());
            let times = supervision.restarts.failures;
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
        text.push_str("\nThe last lines of the runner's log:");
        for line in lines.iter() {
            text.push_str("\n  ");
            text.push_str(line);
        }
    }
    shortened(&text, MAX_FAILURE)
}

/// A runner with many sections can have as many reasons.
fn texts(all: &[String]) -> Vec<String> {
    let mut texts: Vec<_> = all.iter().take(MAX_TEXTS).map(|text| shortened(text, MAX_TEXT)).collect();
    if let Some(others @ 1..) = all.len().checked_sub(MAX_TEXTS) {
        texts.push(format!("and {others} more"));
    }
    texts
}

/// The text, or its first `limit` bytes.
fn shortened(text: &str, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= limit {
        return text.to_owned();
    }
    let most = limit.saturating_sub(MARK.len());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}{MARK}", &text[..end])
}

/// The wall time of a moment, in the whole milliseconds that the state file has.
fn at(moment: Moment) -> SystemTime {
    let since = moment.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_text_is_cut_at_char_boundary() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcdef", 5), "ab…");
        assert_eq!(shortened("ééééé", 8), "éé…");
    }

    #[test]
    fn reasons_beyond_the_limit_are_counted() {
        let all: Vec<_> = (0..1000).map(|section| format!("section {section} does not poll")).collect();
        let shown = texts(&all);
        assert_eq!((shown.len(), shown[19].as_str(), shown[20].as_str()), (21, &*all[19], "and 980 more"));
        assert_eq!(texts(&all[..20]), all[..20]);
    }
}
