//! Output of the operator's commands, as text and as JSON.

use std::{fmt::Write, time::Duration};

use crate::{
    daemon::{
        duration,
        status::{Drain, Drained, Exit, How, Job, JobRouter, Status, time_text},
        visible::{visible, visible_line},
    },
    supervise::{Mode, StopOutcome},
};

/// The status as text, one fact per line.
pub(super) fn status(status: &Status) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: &str| {
        for (number, line) in value.split('\n').enumerate() {
            let name = if number == 0 { name } else { "" };
            let _ = writeln!(text, "{name:<10} {}", visible(line));
        }
    };
    fact("state", status.state.name());
    if let Some(pid) = status.pid {
        fact("pid", &format!("{pid}, started {}", status.started_at.and_then(time_text).unwrap_or_default()));
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
    if status.pid.is_some() {
        let health = &status.health;
        fact("health", health.level.name());
        for (number, reason) in health.reasons.iter().enumerate() {
            fact(if number == 0 { "reason" } else { "" }, reason);
        }
        if let Some(version) = &health.runner_version {
            fact("version", version);
        }
        if let Some(verified) = health.verified {
            fact("boot check", if verified { "passed (boot-verify)" } else { "pending (boot-verify)" });
        }
        if let Some(router) = &health.job_router {
            let JobRouter { circuit_breaker, requests, fallbacks } = router;
            let requests = format!("{requests} requests, {fallbacks} sent to GitLab directly");
            fact("job router", &format!("{requests}, circuit breaker {circuit_breaker}"));
        }
        for group in &health.worker_groups {
            fact("workers", group);
        }
        let jobs = health.jobs.map_or_else(|| "unknown".to_owned(), |jobs| jobs.to_string());
        let limit = health.concurrent.map(|limit| format!(" of {limit} (concurrent)")).unwrap_or_default();
        fact("jobs", &format!("{jobs}{limit}"));
        if let (Some(succeeded), Some(failed)) = (health.jobs_succeeded, health.jobs_failed) {
            fact("ended jobs", &format!("{succeeded} succeeded, {failed} failed"));
        }
        if let Some(oldest) = &health.oldest_job {
            fact("oldest job", &format!("{}, stage {}", oldest.age_text(), oldest.stage));
        }
    }
    // The facts of an earlier drain are indented: it can have the same ones as the current drain.
    let mut drained = |name: &str, drain: &Drain, is_last: bool| {
        let reason =
            if drain.reason.is_empty() { String::new() } else { format!(", reason: {}", drain.reason) };
        fact(name, &format!("{}, id {}{reason}", drain.mode.name(), drain.id));
        let mut detail = |name: &str, value: &str| match is_last {
            true => fact("", &format!("{name:<10} {value}")),
            false => fact(name, value),
        };
        if let Some(requested_at) = drain.requested_at.and_then(time_text) {
            let by = if drain.requested_by.is_empty() { "" } else { " by " };
            detail("requested", &format!("{requested_at}{by}{}", drain.requested_by));
        }
        if !drain.forced_by.is_empty() {
            detail("forced by", &drain.forced_by);
        }
        if drain.signalled && drain.mode == Mode::Graceful {
            detail("SIGQUIT", &open_requests(drain.open_requests));
        }
        if let Some(outcome) = drain.outcome {
            detail("outcome", outcome_text(outcome));
        }
        if let Some(exit) = &drain.exit {
            detail("exit", &exit_text(exit));
        }
    };
    if let Some(drain) = &status.last_drain {
        drained("last drain", drain, true);
    }
    if let Some(drain) = &status.drain {
        drained("drain", drain, false);
        if let Some(deadline) = drain.deadline.and_then(time_text) {
            fact("deadline", &deadline);
        }
    }
    text
}

/// The response to a drain: the drain that was joined, if any, and the status.
pub(super) fn drained(id: &str, answer: &Drained) -> String {
    match joined(id, answer) {
        Some(joined) => format!("{:<10} {}\n{}", "note", visible_line(&joined), status(&answer.status)),
        None => status(&answer.status),
    }
}

/// The drain that the drain with this id joined; `None` if it is a new drain.
pub(super) fn joined(id: &str, answer: &Drained) -> Option<String> {
    if !answer.joined {
        return None;
    }
    Some(match &answer.joined_id {
        None if answer.status.is_over() => {
            "the runner has already exited; there is nothing to drain".to_owned()
        }
        Some(joined) if joined != id => {
            format!("joined the drain {joined:?}, which is already in progress")
        }
        _ => "joined the drain with this id, which is already in progress".to_owned(),
    })
}

/// One line per job, oldest first.
pub(super) fn jobs(jobs: &[Job]) -> String {
    let mut text = format!("{:<12} {:<10} {:<20} {:<20} AGE\n", "JOB", "STATE", "STAGE", "EXECUTOR STAGE");
    for job in jobs {
        let id = job.id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let _ = writeln!(
            text,
            "{id:<12} {:<10} {:<20} {:<20} {}",
            visible_line(&job.state),
            visible_line(&job.stage),
            visible_line(&job.executor_stage),
            duration::show(Duration::from_secs(job.age.as_secs()))
        );
    }
    text
}

fn open_requests(open: Option<u32>) -> String {
    match open {
        None => "sent; the number of open job requests was unknown".to_owned(),
        Some(0) => "sent while no job request was open".to_owned(),
        Some(1) => "sent while 1 job request was open".to_owned(),
        Some(open) => format!("sent while {open} job requests were open"),
    }
}

fn exit_text(exit: &Exit) -> String {
    let how = match &exit.how {
        How::Code(code) => format!("code {code}"),
        How::Signal(signal) => format!("signal {signal}"),
        How::NeverStarted(_) => "the runner was never started".to_owned(),
        How::SpawnError(error) => format!("the runner could not be started: {error}"),
        How::Unknown(_) => "status unknown (adopted runner)".to_owned(),
    };
    if exit.killed { format!("{how}, killed by the wrapper") } else { how }
}

pub(super) fn outcome_text(outcome: StopOutcome) -> &'static str {
    match outcome {
        StopOutcome::Clean => "clean: the runner finished its jobs and exited",
        StopOutcome::JobsAborted => "jobs aborted: the remaining jobs were aborted, and the runner exited",
        StopOutcome::ResultsLost => {
            "results lost: the runner finished its jobs, but could not report the end of at least one of them to GitLab"
        }
        StopOutcome::OpenRequests => {
            "open requests: the runner finished its jobs and exited, but job requests were open when it received SIGQUIT; \
             GitLab may have assigned a job to one of them, which never ran"
        }
        StopOutcome::Killed => "killed: the runner did not exit in time and was killed with its jobs",
        StopOutcome::Failed => "failed: the runner exited with an error; jobs may have been aborted",
        StopOutcome::Unknown => {
            "unknown: the exit code of the runner is unknown, or its log could not be searched for aborted jobs; jobs \
             may have been aborted"
        }
        StopOutcome::NoRunner => "no runner: the runner was not running",
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::Value;

    use super::*;
    use crate::{
        daemon::status::{HealthStatus, OldestJob},
        supervise::RunnerState,
    };

    fn draining() -> Status {
        let at = |millis| Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        Status {
            state: RunnerState::Draining,
            pid: Some(17),
            started_at: at(1_700_000_000_500),
            exit: None,
            failure_reason: String::new(),
            restarts: 0,
            crash_loop: false,
            health: HealthStatus {
                reasons: vec!["the runner is draining".to_owned()],
                runner_version: Some("19.2.0".to_owned()),
                jobs: Some(12),
                oldest_job: Some(OldestJob {
                    age: Duration::from_secs(7803),
                    stage: "step_script".to_owned(),
                }),
                ..HealthStatus::default()
            },
            drain: Some(Drain {
                id: "deploy-7".to_owned(),
                mode: Mode::Graceful,
                reason: "version 2".to_owned(),
                requested_at: at(1_700_000_060_000),
                requested_by: "uid 1000 (deploy), unix socket".to_owned(),
                forced_by: String::new(),
                deadline: None,
                signalled: true,
                outcome: None,
                open_requests: Some(0),
                waits_for: None,
                exit: None,
                graceful_until: None,
                progress_at: None,
            }),
            last_drain: None,
            shutting_down: false,
            wrapper_version: "0.1.0".to_owned(),
            registrations: Vec::new(),
            reading_log: false,
        }
    }

    #[test]
    fn status_text_matches_snapshot() {
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
        SIGQUIT    sent while no job request was open
        ");
        assert_eq!(draining().line(), "is draining, 12 jobs, oldest job 2h10m3s in stage step_script");
    }

    #[test]
    fn status_tells_two_drains_apart() {
        let mut two = draining();
        let drain = two.drain.as_mut().unwrap();
        drain.mode = Mode::Forceful;
        drain.forced_by = "uid 0 (root), unix socket".to_owned();
        two.last_drain = Some(Drain {
            id: "deploy-6".to_owned(),
            outcome: Some(StopOutcome::Clean),
            exit: Some(Exit { how: How::Code(0), killed: false }),
            ..draining().drain.unwrap()
        });
        let text = status(&two);
        let (_, drains) = text.split_once("stage step_script\n").unwrap();
        insta::assert_snapshot!(drains, @r"
        last drain graceful, id deploy-6, reason: version 2
                   requested  2023-11-14T22:14:20Z by uid 1000 (deploy), unix socket
                   SIGQUIT    sent while no job request was open
                   outcome    clean: the runner finished its jobs and exited
                   exit       code 0
        drain      forceful, id deploy-7, reason: version 2
        requested  2023-11-14T22:14:20Z by uid 1000 (deploy), unix socket
        forced by  uid 0 (root), unix socket
        ");
    }

    #[test]
    fn wait_for_a_gap_is_shown() {
        let of = |signalled, open_requests| {
            let mut status = draining();
            let drain = status.drain.as_mut().unwrap();
            (drain.signalled, drain.open_requests) = (signalled, open_requests);
            status
        };
        let line = of(false, Some(2)).line();
        assert!(
            line.starts_with("is draining, waiting for a gap between job requests (2 open), 12 jobs"),
            "{line}"
        );
        assert!(!status(&of(false, Some(2))).contains("SIGQUIT"));
        for (open, text) in
            [(None, "open job requests was unknown"), (Some(2), "while 2 job requests were open")]
        {
            let text_of = status(&of(true, open));
            assert!(text_of.contains(text), "{text_of}");
        }
    }

    #[test]
    fn status_escapes_control_characters() {
        let mut status = draining();
        status.drain.as_mut().unwrap().reason = "\u{1b}[2Jgone\nstate      stopped".to_owned();
        status.health.oldest_job.as_mut().unwrap().stage = "a\nMAINPID=1".to_owned();
        let text = super::status(&status);
        let drain =
            "drain      graceful, id deploy-7, reason: \\u{1b}[2Jgone\n           state      stopped\n";
        assert!(text.contains(drain), "{text}");
        assert!(!status.line().contains('\n'), "systemd would take it for an assignment: {}", status.line());
    }

    #[test]
    fn status_json_has_typed_fields() {
        let value: Value = serde_json::from_str(&draining().json()).unwrap();
        assert_eq!(value["state"], "draining");
        assert_eq!(value["health"]["jobs"], 12);
        assert_eq!(value["health"]["level_max"], Value::Null, "before the first probe");
        assert_eq!(value["health"]["oldest_job"]["age_seconds"], 7803);
        assert_eq!(value["health"]["polling_sections"], Value::Null, "unknown is not zero");
        assert_eq!(value["exit"], Value::Null);
    }
}
