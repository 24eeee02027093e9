//! The health levels and their reasons: of a probe, and in the current state of the runner. Without I/O.

use std::time::Duration;

use grit_proto::wrapper_v1::Level;

use super::{Health, evidence::Evidence, runner_config::ConfigError};
use crate::supervise::{ChildInfo, Moment, Phase, State, Supervision};

/// Minimum uptime of a healthy runner. A runner that fails at its start, for example because its configuration is invalid, exits earlier.
const MIN_UPTIME: Duration = Duration::from_secs(2);

/// For this time a restart lowers the health level.
const RESTART_WINDOW: Duration = Duration::from_secs(60);

/// For this time after its start, an unprobed child is reported as starting. A child that an earlier wrapper has seen is older.
const JUST_STARTED: Duration = Duration::from_secs(60);

/// A suspended process does not receive SIGQUIT either, so a drain does not start.
pub(super) const SUSPENDED: &str =
    "the runner's process is suspended (SIGSTOP or a debugger) and does nothing until it receives SIGCONT";

const NO_EFFECT: &str = "SIGQUIT was sent, but the runner still reports the process state `running`, and may accept new jobs: the command of the \
     wrapper must be the runner itself";

pub(super) const ABORTS_JOBS: &str = "the runner aborts its jobs, because a process other than the wrapper sent SIGTERM or SIGINT to the runner";

/// What a graceful stop waits for before SIGQUIT, as a clause; `None` after the signal.
pub(crate) fn waits_for(phase: &Phase) -> Option<String> {
    match phase {
        Phase::AwaitingGap { not_before, .. } if Moment::now() < *not_before => {
            Some("SIGQUIT is delayed for some seconds".to_owned())
        }
        Phase::AwaitingGap { open: Some(open), .. } => {
            Some(format!("waiting until no job request is open ({open} open)"))
        }
        Phase::AwaitingGap { open: None, .. } => Some("waiting until no job request is open".to_owned()),
        _ => None,
    }
}

/// The level in this state, and the reasons why the next level is not reached.
pub(crate) fn level_now(supervision: &Supervision, health: &Health) -> (Level, Vec<String>) {
    let (mut level, mut reasons) = runner_level(supervision, health);
    if !health.faults.is_empty() {
        level = level.min(Level::Process);
        // The first one is about the state of the runner, and only some are shown.
        let second = reasons.len().min(1);
        reasons.splice(second..second, health.faults.values().cloned());
    }
    let signal_error = supervision.signal_error.as_ref();
    reasons.extend(signal_error.map(|error| format!("cannot send a signal to the runner: {error}")));
    reasons.extend(supervision.save_error.as_ref().map(|error| {
        format!(
            "the state file cannot be written: {error}; if this wrapper is killed, the latest drain is lost"
        )
    }));
    (level, reasons)
}

/// A probe takes seconds, during which the child may exit or start stopping: its level counts only for the same child, and not from before the
/// stop.
fn runner_level(supervision: &Supervision, health: &Health) -> (Level, Vec<String>) {
    let state = &supervision.state;
    let known = health.evidence_in(state);
    let reason = match state {
        State::Idle => "the runner has not been started yet",
        State::Starting => "the runner is starting",
        State::Backoff { .. } => "the runner exited unexpectedly and is waiting for its restart",
        State::Exited { .. } => "the runner is not running",
        State::Running { .. } if known.child.is_some() => return (health.level, health.reasons.clone()),
        State::Running { child, .. } if child.started.elapsed() < JUST_STARTED => {
            "the runner is starting and has not been probed yet"
        }
        State::Running { .. } => "the runner has not been probed yet",
        State::Stopping { phase, .. } => {
            let reason = match waits_for(phase) {
                _ if phase.is_forceful() => {
                    "the runner is being stopped forcefully: its jobs are aborted".to_owned()
                }
                Some(clause) => format!("the runner is draining: {clause}"),
                None => {
                    "the runner is draining: it accepts no new jobs and exits after its last job".to_owned()
                }
            };
            let aborts_jobs = !phase.is_forceful() && (known.aborts_jobs || supervision.observed.aborts_jobs);
            // Before SIGCONT, the signal has no effect.
            let problem =
                if known.suspended { Some(SUSPENDED) } else { known.quit_has_no_effect.then_some(NO_EFFECT) };
            let problems = problem.into_iter().chain(aborts_jobs.then_some(ABORTS_JOBS));
            return (Level::None, [reason].into_iter().chain(problems.map(str::to_owned)).collect());
        }
    };
    (Level::None, vec![reason.to_owned()])
}

impl Health {
    /// The result of a probe of this child, with what it has read.
    pub(crate) fn of(supervision: &Supervision, child: ChildInfo, evidence: &mut Evidence) -> Self {
        let is_running = matches!(supervision.state, State::Running { .. });
        evidence.uptime = is_running.then(|| child.started.elapsed());
        evidence.restarted = supervision.restarts.automatic;
        evidence.remember(&supervision.state);
        let (level, reasons) = health_level(evidence);
        evidence.has_polled |= level >= Level::Polling;
        let level_max = level_max(evidence);
        Self { level, level_max, reasons, evidence: evidence.clone(), ..Self::default() }
    }
}

/// The level that a probe found, and the reasons why the next level is not reached.
///
/// [`MIN_UPTIME`] is a substitute for evidence. A process that has read its configuration and whose job requests GitLab accepts is past that,
/// so a polling runner does not have to wait, also if it stops polling.
pub(super) fn health_level(evidence: &Evidence) -> (Level, Vec<String>) {
    if let Some(reason) = process_fault(evidence) {
        return (Level::None, vec![reason]);
    }
    let (not_ready, not_polling) = (ready_faults(evidence), polling_faults(evidence));
    let (level, reasons) = if !not_ready.is_empty() {
        (Level::Process, not_ready)
    } else if !not_polling.is_empty() {
        (Level::Ready, not_polling)
    } else {
        // An idle runner polls and has no fault, so `polling` has no reason.
        (if evidence.succeeded > 0 { Level::Working } else { Level::Polling }, Vec::new())
    };
    let polls = level >= Level::Polling || evidence.has_polled;
    if !polls && evidence.uptime.is_none_or(|uptime| uptime < MIN_UPTIME) {
        return (Level::None, vec![format!("the runner has been running for less than {MIN_UPTIME:?}")]);
    }
    (level, reasons)
}

/// The maximum level of this runner: `process` if it is configured without an HTTP server, or if the wrapper does not read its configuration.
///
/// If the configuration is missing or has no section, the maximum is `working`, so that the fault is visible.
pub(super) fn level_max(evidence: &Evidence) -> Level {
    let configured = match &evidence.config {
        // Only another command changes this.
        Some(Err(ConfigError::OfAnotherUser(_))) => return Level::Process,
        Some(Ok(config)) => !config.sections.is_empty(),
        Some(Err(error)) => *error == ConfigError::RunSingle,
        None => false,
    };
    if configured && !evidence.has_server { Level::Process } else { Level::Working }
}

fn process_fault(evidence: &Evidence) -> Option<String> {
    if evidence.suspended {
        return Some(SUSPENDED.to_owned());
    }
    let Some(uptime) = evidence.uptime else {
        return Some("the runner is stopping".to_owned());
    };
    if evidence.restarted && uptime < RESTART_WINDOW {
        return Some(format!(
            "the runner exited unexpectedly and was restarted less than {RESTART_WINDOW:?} ago"
        ));
    }
    None
}

fn ready_faults(evidence: &Evidence) -> Vec<String> {
    let mut reasons: Vec<_> = evidence.launcher.iter().cloned().collect();
    match &evidence.config {
        Some(Err(error)) => {
            reasons.push(error.to_string());
            if *error == ConfigError::RunSingle {
                return reasons;
            }
        }
        Some(Ok(config)) if config.sections.is_empty() => {
            reasons
                .push("the runner accepts no jobs: its configuration has no [[runners]] section".to_owned());
        }
        Some(Ok(_)) | None => {}
    }
    if !evidence.has_server {
        use ConfigError::{OfAnotherUser, TooSlow, Unreadable};
        // It may have a listen_address.
        let is_unread =
            matches!(&evidence.config, Some(Err(Unreadable { .. } | TooSlow { .. } | OfAnotherUser(_))));
        if !is_unread {
            reasons.push(
                "the runner has no HTTP server: set listen_address in its configuration, or \
                 --runner-listen-address"
                    .to_owned(),
            );
        }
        return reasons;
    }
    if let Some(fault) = &evidence.fault {
        reasons.push(fault.clone());
        return reasons;
    }
    match (&evidence.ready, evidence.metrics.process_state.as_deref()) {
        // The runner received a shutdown signal that the wrapper did not send. It accepts no jobs, but /health/ready does not show this.
        (_, Some(state)) if state.ends_with("-shutdown") => {
            reasons.push(format!("the runner's process state is {state}"));
        }
        (Some((true, _)), _) | (None, Some("running")) => {}
        (Some((false, text)), _) => reasons.push(format!("the runner reports that it is not ready: {text}")),
        (None, Some(state)) => reasons.push(format!("the runner's process state is {state}")),
        (None, None) if evidence.metrics.version.is_some() => {}
        (None, None) => reasons.push("the runner's metrics do not contain its version".to_owned()),
    }
    reasons
}

fn polling_faults(evidence: &Evidence) -> Vec<String> {
    // Levels above `process` need a readable configuration.
    let Some(config) = evidence.config() else {
        return vec!["the runner's configuration could not be read".to_owned()];
    };
    // The runner asks for jobs of its sections in turn, and only while a slot is free. The jobs of one section can fill all slots before the
    // first request of another one: then the runner takes all jobs that it can.
    let is_full = config.is_full(evidence.metrics.jobs) && evidence.polls.polling(config) > 0;
    let faults = evidence.polls.faults().into_iter().filter(|fault| !(is_full && fault.waits));
    let mut reasons: Vec<String> = faults.map(|fault| fault.reason).collect();
    let (sections, known) = (config.sections.len(), evidence.polls.known());
    if known < sections && !is_full {
        let missing = sections - known;
        reasons.push(format!(
            "{missing} of {sections} [[runners]] sections: no job request has had a response yet"
        ));
    }
    reasons
}

#[cfg(test)]
#[path = "level_tests.rs"]
mod tests;
