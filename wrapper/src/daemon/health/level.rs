//! Computes the health level from evidence, without I/O.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Level, SUSPENDED,
    runner_config::{ConfigError, RunnerConfig, Section},
    runner_metrics::{Facts, Requests},
};
use crate::daemon::duration::show;

/// The evidence for the health level.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// Uptime of the child; `None` if it is stopping.
    pub(super) uptime: Option<Duration>,
    pub(super) min_uptime: Duration,
    /// The child is suspended (SIGSTOP).
    pub(super) suspended: bool,
    /// The child was started after an unexpected exit.
    pub(super) restarted: bool,
    pub(super) restart_window: Duration,
    pub(super) config: Result<&'a RunnerConfig, &'a ConfigError>,
    pub(super) min_sections: usize,
    /// Responses of the runner's HTTP server; `None` if the runner has none.
    pub(super) answers: Option<&'a Answers>,
    pub(super) polls: &'a Polls,
}

/// Responses of the runner's HTTP server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answers {
    /// Why there is no response.
    pub(super) fault: Option<String>,
    /// The text of `/health/ready`, and whether its status was 200. Older runners do not have this path.
    pub(super) ready: Option<(bool, String)>,
    pub(super) facts: Facts,
}

/// The level reached, and the reasons why the next level is not reached.
pub(super) fn health_level(evidence: &Evidence<'_>) -> (Level, Vec<String>) {
    if let Some(reason) = process_fault(evidence) {
        return (Level::None, vec![reason]);
    }
    let reasons = ready_faults(evidence);
    if !reasons.is_empty() {
        return (Level::Process, reasons);
    }
    let reasons = polling_faults(evidence);
    if reasons.is_empty() { (Level::Polling, reasons) } else { (Level::Ready, reasons) }
}

/// The maximum level of this runner: `process` if it is configured without an HTTP server.
///
/// If the configuration is missing or has too few sections, the maximum is `polling`, so that the fault is visible.
pub(super) fn level_max(evidence: &Evidence<'_>) -> Level {
    let configured = evidence.config.is_ok_and(|config| config.sections.len() >= evidence.min_sections);
    if configured && evidence.answers.is_none() { Level::Process } else { Level::Polling }
}

fn process_fault(evidence: &Evidence<'_>) -> Option<String> {
    if evidence.suspended {
        return Some(SUSPENDED.to_owned());
    }
    let Some(uptime) = evidence.uptime else {
        return Some("the runner is stopping".to_owned());
    };
    if uptime < evidence.min_uptime {
        return Some(format!("the runner has been running for less than {:?}", evidence.min_uptime));
    }
    if evidence.restarted && uptime < evidence.restart_window {
        return Some(format!(
            "the runner exited unexpectedly and was restarted less than {:?} ago",
            evidence.restart_window
        ));
    }
    None
}

fn ready_faults(evidence: &Evidence<'_>) -> Vec<String> {
    let mut reasons = Vec::new();
    match evidence.config {
        Err(error) => reasons.push(error.to_string()),
        Ok(config) if config.sections.len() < evidence.min_sections => reasons.push(format!(
            "the runner's configuration has {} [[runners]] sections; --min-runners requires {}",
            config.sections.len(),
            evidence.min_sections
        )),
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
    match (&answers.ready, answers.facts.process_state.as_deref()) {
        // The runner received a shutdown signal that the wrapper did not send. It accepts no jobs, but /health/ready does not show this.
        (_, Some(state)) if state.ends_with("-shutdown") => {
            reasons.push(format!("the runner's process state is {state}"));
        }
        (Some((true, _)), _) | (None, Some("running")) => {}
        (Some((false, text)), _) => reasons.push(format!("the runner reports that it is not ready: {text}")),
        (None, Some(state)) => reasons.push(format!("the runner's process state is {state}")),
        (None, None) if answers.facts.version.is_some() => {}
        (None, None) => reasons.push("the runner's metrics do not contain its version".to_owned()),
    }
    reasons
}

fn polling_faults(evidence: &Evidence<'_>) -> Vec<String> {
    // Levels above `process` need a readable configuration.
    let Ok(config) = evidence.config else {
        return vec!["the runner's configuration could not be read".to_owned()];
    };
    config
        .sections
        .iter()
        .filter_map(|section| {
            let fault = evidence.polls.fault(section)?;
            Some(format!("runner {:?} ({}): {fault}", section.name, section.short_token))
        })
        .collect()
}

/// The result of the last job request of each section, found by comparing the counters of two probes.
#[derive(Clone, Debug, Default)]
pub(super) struct Polls {
    seen: BTreeMap<String, (Requests, Last)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Nothing,
    Accepted,
    /// Unknown: requests were accepted and failed since the last probe.
    Mixed,
    Rejected,
    Failed,
}

impl Polls {
    /// `config` has the limits of the sections; for other sections GitLab Runner's defaults are used.
    pub(super) fn update(&mut self, facts: &Facts, config: Option<&RunnerConfig>) {
        for (section, now) in &facts.sections {
            let configured = config.and_then(|config| config.section(section));
            let limit =
                configured.map_or(Section::UNHEALTHY_REQUESTS_LIMIT, |found| found.unhealthy_requests_limit);
            let (before, last) =
                self.seen.get(section).copied().unwrap_or((Requests::default(), Last::Nothing));
            let rise = |count: fn(&Requests) -> u64| count(now).saturating_sub(count(&before));
            let failures = rise(|requests| requests.health_failures);
            // This many failures since the last probe may have followed the accepted requests. The runner then disables the section, for
            // an hour by default, so no further request would correct the result. The time before the first probe is treated in the same
            // way.
            let disabling = failures.max(rise(|requests| requests.rejected)) >= limit;
            let last = if rise(|requests| requests.accepted) > 0 {
                if disabling { Last::Mixed } else { Last::Accepted }
            } else if rise(|requests| requests.rejected) > 0 {
                Last::Rejected
            } else if rise(|requests| requests.other) > 0 || failures > 0 {
                Last::Failed
            } else {
                last
            };
            self.seen.insert(section.clone(), (*now, last));
        }
    }

    /// Why a section is not polling; `None` if it is.
    fn fault(&self, section: &Section) -> Option<String> {
        let Some((requests, last)) = self.seen.get(&section.short_token) else {
            return Some("no job request has been answered yet".to_owned());
        };
        let fault = match last {
            Last::Accepted => return None,
            Last::Mixed => {
                "job requests since the last probe partly failed; waiting for the next accepted request"
            }
            Last::Rejected => "GitLab rejects its token",
            Last::Failed => "its job requests fail",
            Last::Nothing => "no job request has been answered yet",
        };
        let (failures, limit) = (requests.health_failures, section.unhealthy_requests_limit);
        if failures < limit {
            return Some(fault.to_owned());
        }
        Some(format!(
            "{fault}; {failures} job requests failed in total; after {limit} consecutive failures \
             (unhealthy_requests_limit) the runner pauses its job requests for {} (unhealthy_interval)",
            show(section.unhealthy_interval)
        ))
    }

    pub(super) fn polling(&self, config: &RunnerConfig) -> usize {
        config.sections.iter().filter(|section| self.fault(section).is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn config(tokens: &[&str]) -> RunnerConfig {
        let section = |token: &&str| Section {
            name: "r".to_owned(),
            short_token: (*token).to_owned(),
            unhealthy_requests_limit: Section::UNHEALTHY_REQUESTS_LIMIT,
            unhealthy_interval: Section::UNHEALTHY_INTERVAL,
        };
        RunnerConfig { listen_address: None, sections: tokens.iter().map(section).collect() }
    }

    fn facts(sections: &[(&str, Requests)]) -> Facts {
        Facts {
            version: Some("19.2.0".to_owned()),
            sections: sections.iter().map(|(name, requests)| ((*name).to_owned(), *requests)).collect(),
            ..Facts::default()
        }
    }

    fn accepted(count: u64) -> Requests {
        Requests { accepted: count, ..Requests::default() }
    }

    struct Case {
        uptime: Option<Duration>,
        restarted: bool,
        suspended: bool,
        config: Result<RunnerConfig, ConfigError>,
        answers: Option<Answers>,
        polls: Polls,
    }

    impl Case {
        fn healthy() -> Self {
            let mut polls = Polls::default();
            polls.update(&facts(&[("a", accepted(1)), ("b", accepted(1))]), None);
            let answers = Answers { facts: facts(&[]), ..Answers::default() };
            Self {
                uptime: Some(5 * SECOND),
                restarted: false,
                suspended: false,
                config: Ok(config(&["a", "b"])),
                answers: Some(answers),
                polls,
            }
        }

        fn evidence(&self) -> Evidence<'_> {
            Evidence {
                uptime: self.uptime,
                min_uptime: 2 * SECOND,
                restarted: self.restarted,
                suspended: self.suspended,
                restart_window: 60 * SECOND,
                config: self.config.as_ref(),
                min_sections: 1,
                answers: self.answers.as_ref(),
                polls: &self.polls,
            }
        }

        fn health_level(&self) -> (Level, String) {
            let (level, reasons) = health_level(&self.evidence());
            assert_eq!(level == Level::Polling, reasons.is_empty(), "every rung that is missed has a reason");
            (level, reasons.join("; "))
        }

        #[track_caller]
        fn is(&self, level: Level, reason: &str) {
            let (found, reasons) = self.health_level();
            assert!(found == level && reasons.contains(reason), "{found:?}: {reasons}");
        }
    }

    #[test]
    fn each_health_level_has_its_reason() {
        Case::healthy().is(Level::Polling, "");
        Case { uptime: None, ..Case::healthy() }.is(Level::None, "is stopping");
        Case { uptime: Some(SECOND), ..Case::healthy() }.is(Level::None, "less than 2s");
        Case { suspended: true, ..Case::healthy() }.is(Level::None, "until it receives SIGCONT");
        Case { suspended: true, uptime: None, ..Case::healthy() }
            .is(Level::None, "until it receives SIGCONT");
        Case { restarted: true, ..Case::healthy() }.is(Level::None, "restarted");
        Case { restarted: true, uptime: Some(61 * SECOND), ..Case::healthy() }.is(Level::Polling, "");
        let missing = Err(ConfigError::Missing(PathBuf::from("/etc/x.toml")));
        Case { config: missing, ..Case::healthy() }.is(Level::Process, "does not exist");
        Case { config: Ok(config(&[])), ..Case::healthy() }.is(Level::Process, "has 0 [[runners]] sections");
        Case { answers: None, ..Case::healthy() }.is(Level::Process, "no HTTP server");
        let silent = Answers { fault: Some("connection failed".to_owned()), ..Answers::default() };
        Case { answers: Some(silent), ..Case::healthy() }.is(Level::Process, "connection failed");
        let pending = Answers {
            ready: Some((false, "boot-verify pending".to_owned())),
            facts: facts(&[]),
            ..Answers::default()
        };
        Case { answers: Some(pending), ..Case::healthy() }.is(Level::Process, "boot-verify pending");
        let starting = Answers {
            facts: Facts { process_state: Some("starting".to_owned()), ..facts(&[]) },
            ..Answers::default()
        };
        Case { answers: Some(starting), ..Case::healthy() }.is(Level::Process, "process state is starting");
        let leaving = Answers {
            ready: Some((true, "ready".to_owned())),
            facts: Facts { process_state: Some("graceful-shutdown".to_owned()), ..facts(&[]) },
            ..Answers::default()
        };
        Case { answers: Some(leaving), ..Case::healthy() }
            .is(Level::Process, "process state is graceful-shutdown");
        let nameless = Answers::default();
        Case { answers: Some(nameless), ..Case::healthy() }.is(Level::Process, "do not contain its version");
        Case { polls: Polls::default(), ..Case::healthy() }.is(Level::Ready, "no job request");
    }

    #[test]
    fn max_level_depends_on_config_and_http_server() {
        let level_max = |case: Case| level_max(&case.evidence());
        assert_eq!(level_max(Case::healthy()), Level::Polling);
        assert_eq!(level_max(Case { answers: None, ..Case::healthy() }), Level::Process);
        // A runner without sections accepts no jobs, even without an HTTP server.
        let none = || Case { answers: None, config: Ok(config(&[])), ..Case::healthy() };
        assert_eq!(level_max(none()), Level::Polling);
        let missing = Err(ConfigError::Missing(PathBuf::from("/etc/x.toml")));
        assert_eq!(level_max(Case { config: missing, ..none() }), Level::Polling);
    }

    #[test]
    fn last_job_request_result_decides_polling() {
        let mut case = Case::healthy();
        let rejected =
            |health_failures| Requests { rejected: health_failures, health_failures, ..accepted(1) };
        case.polls.update(&facts(&[("b", rejected(1))]), None);
        case.is(Level::Ready, "rejects its token");
        assert_eq!(case.polls.polling(&config(&["a", "b"])), 1);
        case.polls.update(&facts(&[("b", rejected(3))]), None);
        case.is(Level::Ready, "pauses its job requests for 1h");
        case.polls.update(&facts(&[("b", Requests { accepted: 2, ..rejected(3) })]), None);
        case.is(Level::Polling, "");
    }

    /// After adoption, and with rare probes, the counters are sums: a token that was accepted a hundred times may be invalid now.
    #[test]
    fn repeated_failures_mean_not_polling() {
        let counts = |accepted, rejected| {
            facts(&[("a", Requests { accepted, rejected, other: 0, health_failures: rejected })])
        };
        let first_look = |accepted, rejected| {
            let mut case = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
            case.polls.update(&counts(accepted, rejected), None);
            case
        };
        first_look(100, 0).is(Level::Polling, "");
        first_look(100, 2).is(Level::Polling, "");
        let mut adopted = first_look(100, 3);
        adopted.is(Level::Ready, "pauses its job requests for 1h");
        adopted.polls.update(&counts(100, 3), None);
        adopted.is(Level::Ready, "waiting for the next accepted request");
        adopted.polls.update(&counts(100, 4), None);
        adopted.is(Level::Ready, "rejects its token");
        adopted.polls.update(&counts(101, 4), None);
        adopted.is(Level::Polling, "");
        adopted.polls.update(&counts(102, 7), None);
        adopted.is(Level::Ready, "pauses its job requests for 1h");

        // An unreachable GitLab counts as failed health checks only.
        let mut case = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
        case.polls.update(&facts(&[("a", Requests { health_failures: 3, ..accepted(100) })]), None);
        case.is(Level::Ready, "waiting for the next accepted request; 3 job requests failed in total");
    }

    #[test]
    fn unhealthy_requests_limit_decides_disabled_section() {
        let mut config = config(&["a"]);
        config.sections[0].unhealthy_requests_limit = 10;
        config.sections[0].unhealthy_interval = 90 * SECOND;
        let rejected = |count| Requests { rejected: count, health_failures: count, ..accepted(100) };
        let case = |count| {
            let mut case = Case { config: Ok(config.clone()), polls: Polls::default(), ..Case::healthy() };
            case.polls.update(&facts(&[("a", rejected(count))]), Some(&config));
            case
        };
        case(9).is(Level::Polling, "");
        let reason = "10 job requests failed in total; after 10 consecutive failures (unhealthy_requests_limit) the runner pauses its job requests for 1m30s";
        case(10).is(Level::Ready, reason);
    }
}
