//! Output of the operator's commands, as text and as JSON.

use std::fmt::Write;

use grit_proto::{
    json::{short, time_text},
    wrapper_v1::{Drain, DrainOutcome, DrainResponse, Exit, Job, JobRouter, Mode, Status, exit::How},
};

use crate::{
    daemon::status::{age_text, is_over},
    text::visible::{visible, visible_line},
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
    fact("state", &short(status.state().as_str_name()));
    if let Some(pid) = status.pid {
        fact("pid", &format!("{pid}, started {}", time_text(status.started_at).unwrap_or_default()));
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
        fact("health", &short(health.level().as_str_name()));
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
        let jobs = health.jobs.map_or_else(|| "unknown".to_owned(), |jobs| jobs.to_string());
        let limit = health.concurrent.map(|limit| format!(" of {limit} (concurrent)")).unwrap_or_default();
        fact("jobs", &format!("{jobs}{limit}"));
        if let (Some(succeeded), Some(failed)) = (health.jobs_succeeded, health.jobs_failed) {
            fact("ended jobs", &format!("{succeeded} succeeded, {failed} failed"));
        }
        if let Some(oldest) = &health.oldest_job {
            fact("oldest job", &format!("{}, stage {}", age_text(oldest.age), oldest.stage));
        }
    }
    // The facts of an earlier drain are indented: it can have the same ones as the current drain.
    let mut drained = |name: &str, drain: &Drain, is_last: bool| {
        let reason =
            if drain.reason.is_empty() { String::new() } else { format!(", reason: {}", drain.reason) };
        let mode = short(drain.mode().as_str_name());
        fact(name, &format!("{mode}, id {}{reason}", drain.id));
        let mut detail = |name: &str, value: &str| match is_last {
            true => fact("", &format!("{name:<10} {value}")),
            false => fact(name, value),
        };
        if let Some(requested_at) = time_text(drain.requested_at) {
            let by = if drain.requested_by.is_empty() { "" } else { " by " };
            detail("requested", &format!("{requested_at}{by}{}", drain.requested_by));
        }
        if !drain.forced_by.is_empty() {
            detail("forced by", &drain.forced_by);
        }
        if drain.signalled && drain.mode() == Mode::Graceful {
            detail("SIGQUIT", &open_requests(drain.open_requests));
        }
        if drain.outcome() != DrainOutcome::Unspecified {
            detail("outcome", outcome_text(drain.outcome(), drain.open_requests));
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
        if let Some(deadline) = time_text(drain.deadline) {
            fact("deadline", &deadline);
        }
    }
    if let Some(cancelled) = &status.cancelled_drain {
        let at = time_text(cancelled.cancelled_at).unwrap_or_default();
        fact("cancelled", &format!("drain, id {}, {at} by {}", cancelled.id, cancelled.cancelled_by));
    }
    text
}

/// The response to a drain: the drain that was joined, if any, and the status.
pub(super) fn drained(id: &str, answer: &DrainResponse) -> String {
    let note = joined(id, answer).map(|joined| format!("{:<10} {}\n", "note", visible_line(&joined)));
    note.unwrap_or_default() + &answer.status.as_ref().map(status).unwrap_or_default()
}

/// The drain that the drain with this id joined; `None` if it is a new drain.
pub(super) fn joined(id: &str, answer: &DrainResponse) -> Option<String> {
    if !answer.joined {
        return None;
    }
    Some(match answer.joined_id.as_str() {
        "" if answer.status.as_ref().is_some_and(is_over) => {
            "the runner has already exited; there is nothing to drain".to_owned()
        }
        joined if !joined.is_empty() && joined != id => {
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
            age_text(job.age)
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
        Some(How::Code(code)) => format!("code {code}"),
        Some(How::Signal(signal)) => format!("signal {signal}"),
        Some(How::NeverStarted(_)) => "the runner was never started".to_owned(),
        Some(How::SpawnError(error)) => format!("the runner could not be started: {error}"),
        Some(How::Unknown(_)) | None => "status unknown".to_owned(),
    };
    if exit.killed { format!("{how}, killed by the wrapper") } else { how }
}

pub(super) fn outcome_text(outcome: DrainOutcome, open_requests: Option<u32>) -> &'static str {
    match outcome {
        DrainOutcome::Unspecified => "",
        DrainOutcome::Clean if open_requests.is_none() => {
            "clean; open requests unknown: the runner finished its jobs and exited, but did not report its open job requests"
        }
        DrainOutcome::Clean => "clean: the runner finished its jobs and exited",
        DrainOutcome::JobsAborted => "jobs aborted: the remaining jobs were aborted, and the runner exited",
        DrainOutcome::ResultsLost => {
            "results lost: the runner finished its jobs, but may have given up reporting the end of at least one job to GitLab"
        }
        DrainOutcome::OpenRequests => {
            "open requests: the runner finished its jobs and exited, but job requests were open when it received SIGQUIT; if GitLab had \
             assigned a job to one of these requests, the job never ran"
        }
        DrainOutcome::Killed => "killed: the runner did not exit in time and was killed with its jobs",
        DrainOutcome::Failed => "failed: the runner exited with an error; jobs may have been aborted",
        DrainOutcome::Unknown => {
            "unknown: the exit code of the runner is unknown, and jobs may have been aborted; or the runner exited with code 0, and whether job \
             requests were open when it received SIGQUIT could not be read"
        }
        DrainOutcome::NoRunner => "no runner: the runner was not running",
    }
}

#[cfg(test)]
mod tests {
    use grit_proto::wrapper_v1::{Health, Level, OldestJob, State};
    use prost_types::{Duration, Timestamp};
    use serde_json::Value;

    use super::*;
    use crate::daemon::status::{json, line};

    fn draining() -> Status {
        let at = |seconds, nanos| Some(Timestamp { seconds, nanos });
        Status {
            state: State::Draining.into(),
            pid: Some(17),
            started_at: at(1_700_000_000, 500_000_000),
            health: Some(Health {
                level: Level::None.into(),
                reasons: vec!["the runner is draining".to_owned()],
                runner_version: Some("19.2.0".to_owned()),
                jobs: Some(12),
                oldest_job: Some(OldestJob {
                    age: Some(Duration { seconds: 7803, nanos: 0 }),
                    stage: "step_script".to_owned(),
                }),
                ..Health::default()
            }),
            drain: Some(Drain {
                id: "deploy-7".to_owned(),
                mode: Mode::Graceful.into(),
                reason: "version 2".to_owned(),
                requested_at: at(1_700_000_060, 0),
                requested_by: "uid 1000, unix socket".to_owned(),
                signalled: true,
                open_requests: Some(0),
                ..Drain::default()
            }),
            wrapper_version: "0.1.0".to_owned(),
            ..Status::default()
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
        oldest job 2h10m, stage step_script
        drain      graceful, id deploy-7, reason: version 2
        requested  2023-11-14T22:14:20Z by uid 1000, unix socket
        SIGQUIT    sent while no job request was open
        ");
        assert_eq!(line(&draining()), "is draining, 12 jobs, oldest job 2h10m in stage step_script");
    }

    #[test]
    fn status_distinguishes_two_drains() {
        let mut two = draining();
        let drain = two.drain.as_mut().unwrap();
        drain.set_mode(Mode::Forceful);
        drain.forced_by = "uid 0, unix socket".to_owned();
        two.last_drain = Some(Drain {
            id: "deploy-6".to_owned(),
            outcome: DrainOutcome::Clean.into(),
            exit: Some(Exit { how: Some(How::Code(0)), killed: false }),
            ..draining().drain.unwrap()
        });
        let text = status(&two);
        let (_, drains) = text.split_once("stage step_script\n").unwrap();
        insta::assert_snapshot!(drains, @r"
        last drain graceful, id deploy-6, reason: version 2
                   requested  2023-11-14T22:14:20Z by uid 1000, unix socket
                   SIGQUIT    sent while no job request was open
                   outcome    clean: the runner finished its jobs and exited
                   exit       code 0
        drain      forceful, id deploy-7, reason: version 2
        requested  2023-11-14T22:14:20Z by uid 1000, unix socket
        forced by  uid 0, unix socket
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
        let line = line(&of(false, Some(2)));
        assert!(
            line.starts_with("is draining, waiting until no job request is open (2 open), 12 jobs"),
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
        status.health.as_mut().unwrap().oldest_job.as_mut().unwrap().stage = "a\nMAINPID=1".to_owned();
        let text = super::status(&status);
        let drain =
            "drain      graceful, id deploy-7, reason: \\u{1b}[2Jgone\n           state      stopped\n";
        assert!(text.contains(drain), "{text}");
        let line = line(&status);
        assert!(!line.contains('\n'), "systemd would take it for an assignment: {line}");
    }

    #[test]
    fn status_json_has_typed_fields() {
        let value: Value = serde_json::from_str(&json(&draining())).unwrap();
        assert_eq!(value["state"], "draining");
        assert_eq!(value["health"]["jobs"], 12);
        assert_eq!(value["health"]["level_max"], Value::Null, "before the first probe");
        assert_eq!(value["health"]["oldest_job"]["age_seconds"], 7803);
        assert_eq!(value["health"]["polling_sections"], Value::Null, "unknown is not zero");
        assert_eq!(value["exit"], Value::Null);
    }
}
