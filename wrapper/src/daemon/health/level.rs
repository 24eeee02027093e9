//! The health levels, and their computation from evidence, without I/O.

use std::time::Duration;

use serde::Serialize;

use super::{
    polls::Polls,
    runner_config::{ConfigError, RunnerConfig},
    runner_metrics::RunnerMetrics,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Not healthy.
    #[default]
    None,
    Process,
    Ready,
    Polling,
    Working,
}

impl Level {
    pub const ALL: [Self; 5] = [Self::None, Self::Process, Self::Ready, Self::Polling, Self::Working];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Ready => "ready",
            Self::Polling => "polling",
            Self::Working => "working",
        }
    }
}

/// A suspended process does not receive SIGQUIT either, so a drain does not start.
pub(super) const SUSPENDED: &str =
    "the runner's process is suspended (SIGSTOP or a debugger) and does nothing until it receives SIGCONT";

/// The evidence for the health level.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// Uptime of the child; `None` if it is stopping.
    pub(super) uptime: Option<Duration>,
    pub(super) min_uptime: Duration,
    /// An earlier probe of this child reached `polling`.
    pub(super) has_polled: bool,
    /// The child is suspended (SIGSTOP).
    pub(super) suspended: bool,
    /// Why SIGQUIT would not reach the runner, which the child has started.
    pub(super) launcher: Option<&'a str>,
    /// The child was started after an unexpected exit.
    pub(super) restarted: bool,
    pub(super) restart_window: Duration,
    pub(super) config: Result<&'a RunnerConfig, &'a ConfigError>,
    /// Responses of the runner's HTTP server; `None` if the runner has none.
    pub(super) answers: Option<&'a Answers>,
    pub(super) polls: &'a Polls,
    /// Jobs of this process that have ended successfully.
    pub(super) succeeded: u64,
}

/// Responses of the runner's HTTP server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answers {
    /// Why there is no response.
    pub(super) fault: Option<String>,
    /// The text of `/health/ready`, and whether its status was 200. Older runners do not have this path.
    pub(super) ready: Option<(bool, String)>,
    pub(super) metrics: RunnerMetrics,
}

/// The level reached, and the reasons why the next level is not reached.
///
/// The minimum uptime is a substitute for evidence: it excludes a runner that exits just after its start, for example because its
/// configuration is invalid. A process that has read its configuration and whose job requests GitLab accepts is past that, so a polling
/// runner does not have to wait, also if it stops polling.
pub(super) fn health_level(evidence: &Evidence<'_>) -> (Level, Vec<String>) {
    if let Some(reason) = process_fault(evidence) {
        return (Level::None, vec![reason]);
    }
    let (level, reasons) = level_by_responses(evidence);
    let polls = level >= Level::Polling || evidence.has_polled;
    match too_young(evidence) {
        Some(reason) if !polls => (Level::None, vec![reason]),
        _ => (level, reasons),
    }
}

fn level_by_responses(evidence: &Evidence<'_>) -> (Level, Vec<String>) {
    let reasons = ready_faults(evidence);
    if !reasons.is_empty() {
        return (Level::Process, reasons);
    }
    let reasons = polling_faults(evidence);
    if !reasons.is_empty() {
        return (Level::Ready, reasons);
    }
    // An idle runner polls and has no fault, so `polling` has no reason.
    (if evidence.succeeded > 0 { Level::Working } else { Level::Polling }, reasons)
}

/// The maximum level of this runner: `process` if it is configured without an HTTP server.
///
/// If the configuration is missing or has no section, the maximum is `working`, so that the fault is visible.
pub(super) fn level_max(evidence: &Evidence<'_>) -> Level {
    let configured = match evidence.config {
        Ok(config) => !config.sections.is_empty(),
        Err(error) => *error == ConfigError::RunSingle,
    };
    if configured && evidence.answers.is_none() { Level::Process } else { Level::Working }
}

fn process_fault(evidence: &Evidence<'_>) -> Option<String> {
    if evidence.suspended {
        return Some(SUSPENDED.to_owned());
    }
    let Some(uptime) = evidence.uptime else {
        return Some("the runner is stopping".to_owned());
    };
    if evidence.restarted && uptime < evidence.restart_window {
        return Some(format!(
            "the runner exited unexpectedly and was restarted less than {:?} ago",
            evidence.restart_window
        ));
    }
    None
}

fn too_young(evidence: &Evidence<'_>) -> Option<String> {
    let is_young = evidence.uptime.is_none_or(|uptime| uptime < evidence.min_uptime);
    is_young.then(|| format!("the runner has been running for less than {:?}", evidence.min_uptime))
}

fn ready_faults(evidence: &Evidence<'_>) -> Vec<String> {
    let mut reasons: Vec<_> = evidence.launcher.map(str::to_owned).into_iter().collect();
    match evidence.config {
        Err(error) => {
            reasons.push(error.to_string());
            if *error == ConfigError::RunSingle {
                return reasons;
            }
        }
        Ok(config) if config.sections.is_empty() => {
            reasons.push(
                "the runner's configuration has no [[runners]] section, so it takes no jobs".to_owned(),
            );
        }
        Ok(_) => {}
    }
    let Some(answers) = evidence.answers else {
        reasons.push(
            "the runner has no HTTP server: set listen_address in its configuration, or \
             --runner-listen-address"
                .to_owned(),
        );
        return reasons;
    };
    if let Some(fault) = &answers.fault {
        reasons.push(fault.clone());
        return reasons;
    }
    match (&answers.ready, answers.metrics.process_state.as_deref()) {
        // The runner received a shutdown signal that the wrapper did not send. It accepts no jobs, but /health/ready does not show this.
        (_, Some(state)) if state.ends_with("-shutdown") => {
            reasons.push(format!("the runner's process state is {state}"));
        }
        (Some((true, _)), _) | (None, Some("running")) => {}
        (Some((false, text)), _) => reasons.push(format!("the runner reports that it is not ready: {text}")),
        (None, Some(state)) => reasons.push(format!("the runner's process state is {state}")),
        (None, None) if answers.metrics.version.is_some() => {}
        (None, None) => reasons.push("the runner's metrics do not contain its version".to_owned()),
    }
    reasons
}

fn polling_faults(evidence: &Evidence<'_>) -> Vec<String> {
    // Levels above `process` need a readable configuration.
    let Ok(config) = evidence.config else {
        return vec!["the runner's configuration could not be read".to_owned()];
    };
    // The runner asks for jobs of its sections in turn, and only while a slot is free. The jobs of one section can fill all slots before the
    // first request of another one: then the runner takes all jobs that it can.
    let jobs = evidence.answers.and_then(|answers| answers.metrics.jobs);
    let is_full = config.is_full(jobs) && evidence.polls.polling(config) > 0;
    let faults = evidence.polls.faults().into_iter().filter(|fault| !(is_full && fault.waits));
    let mut reasons: Vec<String> = faults.map(|fault| fault.reason).collect();
    let (sections, known) = (config.sections.len(), evidence.polls.known());
    if known < sections && !is_full {
        let missing = sections - known;
        reasons.push(format!(
            "{missing} of {sections} [[runners]] sections: no job request has been answered yet"
        ));
    }
    reasons
}

/// The result of boot-verify: the runner is ready after its canary jobs only. `None` if no canary job runs in a section.
///
/// `config` must be the one that the runner read at its start.
pub(super) fn boot_verified(config: &RunnerConfig, answers: &Answers) -> Option<bool> {
    let is_enabled = !config.sections.is_empty() && config.sections.iter().all(|section| section.boot_verify);
    answers.ready.as_ref().filter(|_| is_enabled).map(|(ready, _)| *ready)
}

#[cfg(test)]
#[path = "level_tests.rs"]
mod tests;
