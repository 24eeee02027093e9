//! Output of the operator's commands, as text and as JSON.

use std::{fmt::Write, time::Duration};

use grit_proto::wrapper_v1::{
    Drain, DrainOutcome, DrainResponse, Exit, Health, Job, Level, Mode, State, Status, exit::How,
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::daemon::duration;
use crate::daemon::visible::{visible, visible_line};

/// The state in one line, for a progress display and for errors.
pub(crate) fn line(status: &Status) -> String {
    let mut line = format!("is {}", state(status.state()));
    if let Some(health) = &status.health {
        if status.state() == State::Running {
            let _ = write!(line, ", health level {}", level(health.level()));
        }
        if let Some(jobs) = health.jobs {
            let _ = write!(line, ", {jobs} {}", if jobs == 1 { "job" } else { "jobs" });
        }
        if let Some(oldest) = &health.oldest_job {
            let _ = write!(line, ", oldest job {} in stage {}", age(oldest.age), visible_line(&oldest.stage));
        }
    }
    line
}

/// The status as text, one fact per line.
pub(super) fn status(status: &Status) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: &str| {
        for (number, line) in value.split('\n').enumerate() {
            let name = if number == 0 { name } else { "" };
            let _ = writeln!(text, "{name:<10} {}", visible(line));
        }
    };
    fact("state", state(status.state()));
    if let Some(pid) = status.pid {
        fact("pid", &format!("{pid}, started {}", moment(status.started_at).unwrap_or_default()));
    }
    if let Some(exit) = &status.exit {
        fact("exit", &exit_text(exit));
    }
    if !status.failure_reason.is_empty() {
        fact("failure", &status.failure_reason);
    }
    if status.restarts > 0 {
        let crash_loop = if status.crash_loop { " (crash loop)" } else { "" };
        fact("restarts", &format!("{}{crash_loop}", status.restarts));
    }
    if let Some(health) = status.health.as_ref().filter(|_| status.pid.is_some()) {
        fact("health", level(health.level()));
        for (number, reason) in health.reasons.iter().enumerate() {
            fact(if number == 0 { "reason" } else { "" }, reason);
        }
        if let Some(version) = &health.runner_version {
            fact("version", version);
        }
        fact("jobs", &health.jobs.map_or_else(|| "unknown".to_owned(), |jobs| jobs.to_string()));
        if let Some(oldest) = &health.oldest_job {
            fact("oldest job", &format!("{}, stage {}", age(oldest.age), oldest.stage));
        }
    }
    let mut drained = |name: &str, drain: &Drain| {
        let reason =
            if drain.reason.is_empty() { String::new() } else { format!(", reason: {}", drain.reason) };
        fact(name, &format!("{}, id {}{reason}", mode(drain.mode()), drain.id));
        if let Some(asked_at) = moment(drain.asked_at) {
            let by = if drain.asked_by.is_empty() { "" } else { " by " };
            fact("requested", &format!("{asked_at}{by}{}", drain.asked_by));
        }
        if let Some(outcome) = outcome_words(drain.outcome()) {
            fact("outcome", outcome);
        }
        if let Some(exit) = &drain.exit {
            fact("exit", &exit_text(exit));
        }
    };
    if let Some(drain) = &status.last_drain {
        drained("last drain", drain);
    }
    if let Some(drain) = &status.drain {
        drained("drain", drain);
        if let Some(deadline) = moment(drain.deadline) {
            fact("deadline", &deadline);
        }
    }
    text
}

/// The response to a drain: the drain that was joined, if any, and the status.
pub(super) fn drained(id: &str, answer: &DrainResponse) -> String {
    let status = answer.status.clone().unwrap_or_default();
    match joined(id, answer) {
        Some(joined) => format!("{:<10} {}\n{}", "note", visible_line(&joined), self::status(&status)),
        None => self::status(&status),
    }
}

/// The drain that the drain with this id joined; `None` if it is a new drain.
pub(super) fn joined(id: &str, answer: &DrainResponse) -> Option<String> {
    let status = answer.status.as_ref();
    // Wrappers before 0.2 send no id.
    let is_over =
        answer.joined_id.is_empty() && status.is_some_and(|status| status.state() == State::Stopped);
    if !answer.joined {
        None
    } else if is_over {
        Some("the runner has already exited; there is nothing to drain".to_owned())
    } else if answer.joined_id == id || answer.joined_id.is_empty() {
        Some("joined the drain with this id, which is already in progress".to_owned())
    } else {
        Some(format!("joined the drain {:?}, which is already in progress", answer.joined_id))
    }
}

/// The response to a drain as JSON.
pub(crate) fn drained_json(answer: &DrainResponse) -> String {
    let mut value = status_value(&answer.status.clone().unwrap_or_default());
    value["joined"] = answer.joined.into();
    value["joined_id"] = Some(&answer.joined_id).filter(|id| !id.is_empty()).cloned().into();
    line_of(&value)
}

pub(crate) fn status_json(status: &Status) -> String {
    line_of(&status_value(status))
}

fn status_value(status: &Status) -> Value {
    json!({
        "state": state(status.state()),
        "pid": status.pid,
        "started_at": moment(status.started_at),
        "exit": status.exit.as_ref().map(exit_json),
        "failure_reason": status.failure_reason,
        "restarts": status.restarts,
        "crash_loop": status.crash_loop,
        "health": status.health.as_ref().map(health_json),
        "drain": status.drain.as_ref().map(drain_json),
        "last_drain": status.last_drain.as_ref().map(drain_json),
        "leaving": status.leaving,
        "wrapper_version": status.wrapper_version,
    })
}

/// One line per job, oldest first.
pub(super) fn jobs(jobs: &[Job]) -> String {
    let mut jobs: Vec<_> = jobs.iter().collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(seconds(job.age)));
    let mut text = format!("{:<12} {:<10} {:<20} {:<20} AGE\n", "JOB", "STATE", "STAGE", "EXECUTOR STAGE");
    for job in jobs {
        let id = job.id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let _ = writeln!(
            text,
            "{id:<12} {:<10} {:<20} {:<20} {}",
            visible_line(&job.state),
            visible_line(&job.stage),
            visible_line(&job.executor_stage),
            age(job.age)
        );
    }
    text
}

pub(crate) fn jobs_json(jobs: &[Job]) -> String {
    let job = |job: &Job| {
        json!({
            "id": job.id,
            "state": job.state,
            "stage": job.stage,
            "executor_stage": job.executor_stage,
            "age_seconds": seconds(job.age),
        })
    };
    line_of(&jobs.iter().map(job).collect())
}

fn exit_json(exit: &Exit) -> Value {
    let how = match &exit.how {
        Some(How::Code(code)) => json!({ "code": code }),
        Some(How::Signal(signal)) => json!({ "signal": signal }),
        Some(How::NeverStarted(_)) => json!({ "never_started": true }),
        Some(How::SpawnError(error)) => json!({ "spawn_error": error }),
        Some(How::Unknown(_)) | None => json!({ "unknown": true }),
    };
    json!({ "how": how, "killed": exit.killed })
}

fn health_json(health: &Health) -> Value {
    json!({
        "level": level(health.level()),
        "goal": (health.goal() != Level::Unspecified).then(|| level(health.goal())),
        "reasons": health.reasons,
        "runner_version": health.runner_version,
        "runner_revision": health.runner_revision,
        "process_state": health.process_state,
        "sections": health.sections,
        "polling_sections": health.polling_sections,
        "jobs": health.jobs,
        "oldest_job": health.oldest_job.as_ref().map(|oldest| json!({
            "age_seconds": seconds(oldest.age),
            "stage": oldest.stage,
        })),
    })
}

fn drain_json(drain: &Drain) -> Value {
    json!({
        "id": drain.id,
        "mode": mode(drain.mode()),
        "reason": drain.reason,
        "asked_at": moment(drain.asked_at),
        "asked_by": drain.asked_by,
        "deadline": moment(drain.deadline),
        "signalled": drain.signalled,
        "outcome": outcome(drain.outcome()),
        "exit": drain.exit.as_ref().map(exit_json),
    })
}

fn line_of(value: &Value) -> String {
    format!("{value}\n")
}

fn exit_text(exit: &Exit) -> String {
    let how = match &exit.how {
        Some(How::Code(code)) => format!("code {code}"),
        Some(How::Signal(signal)) => format!("signal {signal}"),
        Some(How::NeverStarted(_)) => "the runner was never started".to_owned(),
        Some(How::SpawnError(error)) => format!("the runner could not be started: {error}"),
        Some(How::Unknown(_)) | None => "status unknown (adopted runner)".to_owned(),
    };
    if exit.killed { format!("{how}, killed by the wrapper") } else { how }
}

fn state(state: State) -> &'static str {
    match state {
        State::Unspecified => "unknown",
        State::Idle => "idle",
        State::Starting => "starting",
        State::Running => "running",
        State::Draining => "draining",
        State::Forcing => "forcing",
        State::Backoff => "backoff",
        State::Stopped => "stopped",
    }
}

pub(super) fn level(level: Level) -> &'static str {
    match level {
        Level::Unspecified => "unknown",
        Level::None => "none",
        Level::Process => "process",
        Level::Ready => "ready",
        Level::Polling => "polling",
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Unspecified => "unknown",
        Mode::Graceful => "graceful",
        Mode::Forceful => "forceful",
    }
}

/// The outcome in JSON; `None` while the drain is in progress.
fn outcome(outcome: DrainOutcome) -> Option<&'static str> {
    Some(match outcome {
        DrainOutcome::Unspecified => return None,
        DrainOutcome::Clean => "clean",
        DrainOutcome::JobsAborted => "jobs_aborted",
        DrainOutcome::Killed => "killed",
        DrainOutcome::Failed => "failed",
        DrainOutcome::Unknown => "unknown",
        DrainOutcome::NoRunner => "no_runner",
    })
}

/// The outcome as text.
pub(super) fn outcome_words(outcome: DrainOutcome) -> Option<&'static str> {
    Some(match outcome {
        DrainOutcome::Unspecified => return None,
        DrainOutcome::Clean => "clean: the runner finished its jobs and exited",
        DrainOutcome::JobsAborted => "jobs aborted: the remaining jobs were aborted, and the runner exited",
        DrainOutcome::Killed => "killed: the runner did not exit in time and was killed with its jobs",
        DrainOutcome::Failed => "failed: the runner exited with an error; jobs may have been aborted",
        DrainOutcome::Unknown => {
            "unknown: the runner exited, but its exit code is unknown; jobs may have been aborted"
        }
        DrainOutcome::NoRunner => "no runner: the runner was not running",
    })
}

fn seconds(age: Option<prost_types::Duration>) -> i64 {
    age.map_or(0, |age| age.seconds)
}

fn age(age: Option<prost_types::Duration>) -> String {
    duration::show(Duration::from_secs(u64::try_from(seconds(age)).unwrap_or_default()))
}

fn moment(time: Option<prost_types::Timestamp>) -> Option<String> {
    let time = time?;
    let nanos = Duration::from_nanos(u64::try_from(time.nanos).unwrap_or_default());
    (OffsetDateTime::from_unix_timestamp(time.seconds).ok()? + nanos).format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draining() -> Status {
        Status {
            state: State::Draining.into(),
            pid: Some(17),
            started_at: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 500_000_000 }),
            health: Some(Health {
                level: Level::None.into(),
                reasons: vec!["the runner is draining".to_owned()],
                runner_version: Some("19.2.0".to_owned()),
                jobs: Some(12),
                oldest_job: Some(grit_proto::wrapper_v1::OldestJob {
                    age: Some(prost_types::Duration { seconds: 7803, nanos: 0 }),
                    stage: "step_script".to_owned(),
                }),
                ..Health::default()
            }),
            drain: Some(Drain {
                id: "deploy-7".to_owned(),
                mode: Mode::Graceful.into(),
                reason: "version 2".to_owned(),
                signalled: true,
                asked_at: Some(prost_types::Timestamp { seconds: 1_700_000_060, nanos: 0 }),
                asked_by: "uid 1000 (deploy), unix socket".to_owned(),
                ..Drain::default()
            }),
            wrapper_version: "0.1.0".to_owned(),
            ..Status::default()
        }
    }

    #[test]
    fn status_text_snapshot() {
        insta::assert_snapshot!(status(&draining()), @r"
        state      draining
        pid        17, started 2023-11-14T22:13:20.5Z
        health     none
        reason     the runner is draining
        version    19.2.0
        jobs       12
        oldest job 2h10m3s, stage step_script
        drain      graceful, id deploy-7, reason: version 2
        requested  2023-11-14T22:14:20Z by uid 1000 (deploy), unix socket
        ");
        assert_eq!(line(&draining()), "is draining, 12 jobs, oldest job 2h10m3s in stage step_script");
    }

    #[test]
    fn status_escapes_control_characters() {
        let mut status = draining();
        status.drain.as_mut().unwrap().reason = "\u{1b}[2Jgone\nstate      stopped".to_owned();
        status.health.as_mut().unwrap().oldest_job.as_mut().unwrap().stage = "a\nMAINPID=1".to_owned();
        let text = super::status(&status);
        let drain =
            "drain      graceful, id deploy-7, reason: \\u{1b}[2Jgone\n           state      stopped\n";
        assert!(text.contains(drain), "{text}");
        assert!(!line(&status).contains('\n'), "systemd would take it for an assignment: {}", line(&status));
    }

    #[test]
    fn status_json_has_typed_fields() {
        let value: Value = serde_json::from_str(&status_json(&draining())).unwrap();
        assert_eq!(value["state"], "draining");
        assert_eq!(value["health"]["jobs"], 12);
        assert_eq!(value["health"]["goal"], Value::Null, "it was not looked at yet");
        assert_eq!(value["health"]["oldest_job"]["age_seconds"], 7803);
        assert_eq!(value["health"]["polling_sections"], Value::Null, "unknown is not zero");
        assert_eq!(value["exit"], Value::Null);
    }
}
