use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use super::*;
use crate::runner::{
    polls::Polls,
    runner_config::{RunnerConfig, Section},
    runner_metrics::{CircuitBreaker, JobRouter, Requests, RunnerMetrics, SectionId},
};

const SECOND: Duration = Duration::from_secs(1);

fn config(names: &[&str]) -> RunnerConfig {
    let section = |name: &&str| Section { name: (*name).to_owned(), ..Section::default() };
    RunnerConfig { sections: names.iter().map(section).collect(), ..RunnerConfig::default() }
}

/// The sections that the runner has configured: label and name.
fn configured(sections: &[(&str, &str)]) -> BTreeMap<SectionId, u64> {
    sections.iter().map(|(label, name)| (((*label).to_owned(), Some((*name).to_owned())), 0)).collect()
}

fn metrics(sections: &[(&str, Requests)]) -> RunnerMetrics {
    RunnerMetrics {
        version: Some("19.2.0".to_owned()),
        sections: sections.iter().map(|(name, requests)| ((*name).to_owned(), *requests)).collect(),
        ..RunnerMetrics::default()
    }
}

fn accepted(count: u64) -> Requests {
    Requests { accepted: count, ..Requests::default() }
}

/// What a probe finds.
struct Case {
    uptime: Option<Duration>,
    has_polled: bool,
    restarted: bool,
    suspended: bool,
    config: Result<RunnerConfig, ConfigError>,
    answers: Option<Answers>,
    polls: Polls,
    succeeded: u64,
}

/// Responses of the runner's HTTP server.
#[derive(Clone, Default)]
struct Answers {
    fault: Option<String>,
    ready: Option<(bool, String)>,
    metrics: RunnerMetrics,
}

impl Case {
    fn healthy() -> Self {
        let mut polls = Polls::default();
        polls.update(&metrics(&[("a", accepted(1)), ("b", accepted(1))]), None);
        let answers = Answers { metrics: metrics(&[]), ..Answers::default() };
        Self {
            uptime: Some(5 * SECOND),
            has_polled: false,
            restarted: false,
            suspended: false,
            config: Ok(config(&["a", "b"])),
            answers: Some(answers),
            polls,
            succeeded: 0,
        }
    }

    fn evidence(&self) -> Evidence {
        let answers = self.answers.clone().unwrap_or_default();
        Evidence {
            uptime: self.uptime,
            has_polled: self.has_polled,
            restarted: self.restarted,
            suspended: self.suspended,
            config: Some(self.config.clone().map(Arc::new)),
            has_server: self.answers.is_some(),
            fault: answers.fault,
            ready: answers.ready,
            metrics: answers.metrics,
            polls: self.polls.clone(),
            succeeded: self.succeeded,
            ..Evidence::default()
        }
    }

    fn health_level(&self) -> (Level, String) {
        let (level, reasons) = health_level(&self.evidence());
        assert_eq!(level >= Level::Polling, reasons.is_empty(), "each level below polling has a reason");
        (level, reasons.join("; "))
    }

    #[track_caller]
    fn is(&self, level: Level, reason: &str) {
        let (found, reasons) = self.health_level();
        assert!(found == level && reasons.contains(reason), "{found:?}: {reasons}");
    }
}

#[test]
fn runner_without_section_is_not_ready() {
    let case = Case { config: Ok(config(&[])), succeeded: 1, ..Case::healthy() };
    let (level, reasons) = health_level(&case.evidence());
    assert_eq!(level, Level::Process);
    assert_eq!(reasons, ["the runner accepts no jobs: its configuration has no [[runners]] section"]);
}

#[test]
fn runner_behind_a_launcher_is_below_ready() {
    let case = Case { succeeded: 1, ..Case::healthy() };
    let (level, reasons) =
        health_level(&Evidence { launcher: Some("through `su`".to_owned()), ..case.evidence() });
    assert_eq!((level, reasons), (Level::Process, vec!["through `su`".to_owned()]));
}

#[test]
fn each_health_level_has_its_reason() {
    Case::healthy().is(Level::Polling, "");
    Case { uptime: None, ..Case::healthy() }.is(Level::None, "is stopping");
    Case { uptime: Some(SECOND), polls: Polls::default(), ..Case::healthy() }.is(Level::None, "less than 2s");
    Case { suspended: true, ..Case::healthy() }.is(Level::None, "until it receives SIGCONT");
    Case { suspended: true, uptime: None, ..Case::healthy() }.is(Level::None, "until it receives SIGCONT");
    Case { restarted: true, ..Case::healthy() }.is(Level::None, "restarted");
    Case { restarted: true, uptime: Some(61 * SECOND), ..Case::healthy() }.is(Level::Polling, "");
    let missing = Err(ConfigError::Missing(PathBuf::from("/etc/x.toml")));
    Case { config: missing, ..Case::healthy() }.is(Level::Process, "does not exist");
    Case { config: Ok(config(&[])), ..Case::healthy() }.is(Level::Process, "has no [[runners]] section");
    Case { answers: None, ..Case::healthy() }.is(Level::Process, "no HTTP server");
    let silent = Answers { fault: Some("connection failed".to_owned()), ..Answers::default() };
    Case { answers: Some(silent), ..Case::healthy() }.is(Level::Process, "connection failed");
    let pending = Answers {
        ready: Some((false, "boot-verify pending".to_owned())),
        metrics: metrics(&[]),
        ..Answers::default()
    };
    Case { answers: Some(pending), ..Case::healthy() }.is(Level::Process, "boot-verify pending");
    let starting = Answers {
        metrics: RunnerMetrics { process_state: Some("starting".to_owned()), ..metrics(&[]) },
        ..Answers::default()
    };
    Case { answers: Some(starting), ..Case::healthy() }.is(Level::Process, "process state is starting");
    let leaving = Answers {
        ready: Some((true, "ready".to_owned())),
        metrics: RunnerMetrics { process_state: Some("graceful-shutdown".to_owned()), ..metrics(&[]) },
        ..Answers::default()
    };
    Case { answers: Some(leaving), ..Case::healthy() }
        .is(Level::Process, "process state is graceful-shutdown");
    let nameless = Answers::default();
    Case { answers: Some(nameless), ..Case::healthy() }.is(Level::Process, "do not contain its version");
    Case { polls: Polls::default(), ..Case::healthy() }.is(Level::Ready, "no job request");
}

#[test]
fn polling_runner_needs_no_minimum_uptime() {
    let young = || Case { uptime: Some(SECOND), ..Case::healthy() };
    young().is(Level::Polling, "");
    let idle = || Case { polls: Polls::default(), ..young() };
    idle().is(Level::None, "less than 2s");
    Case { has_polled: true, ..idle() }.is(Level::Ready, "no job request");
    Case { restarted: true, ..young() }.is(Level::None, "restarted");
}

#[test]
fn max_level_depends_on_config_and_http_server() {
    let level_max = |case: Case| level_max(&case.evidence());
    assert_eq!(level_max(Case::healthy()), Level::Working);
    assert_eq!(level_max(Case { answers: None, ..Case::healthy() }), Level::Process);
    // A runner without sections accepts no jobs, even without an HTTP server.
    let none = || Case { answers: None, config: Ok(config(&[])), ..Case::healthy() };
    assert_eq!(level_max(none()), Level::Working);
    let missing = Err(ConfigError::Missing(PathBuf::from("/etc/x.toml")));
    assert_eq!(level_max(Case { config: missing, ..none() }), Level::Working);
    let single = || Case { config: Err(ConfigError::RunSingle), ..none() };
    assert_eq!(level_max(single()), Level::Process);
    single().is(Level::Process, "run-single");
}

#[test]
fn last_job_request_result_decides_polling() {
    let mut case = Case::healthy();
    let rejected = |health_failures| Requests { rejected: health_failures, health_failures, ..accepted(1) };
    case.polls.update(&metrics(&[("b", rejected(1))]), None);
    case.is(Level::Ready, "rejects its token");
    assert_eq!(case.polls.polling(&config(&["a", "b"])), 1);
    case.polls.update(&metrics(&[("b", rejected(3))]), None);
    case.is(Level::Ready, "pauses its job requests for 1h");
    case.polls.update(&metrics(&[("b", Requests { accepted: 2, ..rejected(3) })]), None);
    case.is(Level::Polling, "");
}

/// After a restart of the wrapper, and with rare probes, the counters are sums: a token that was accepted a hundred times may be invalid now.
#[test]
fn repeated_failures_mean_not_polling() {
    let counts = |accepted, rejected| {
        metrics(&[("a", Requests { rejected, health_failures: rejected, ..self::accepted(accepted) })])
    };
    let first_look = |accepted, rejected| {
        let mut case = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
        case.polls.update(&counts(accepted, rejected), None);
        case
    };
    first_look(100, 0).is(Level::Polling, "");
    first_look(100, 2).is(Level::Polling, "");
    let mut earlier = first_look(100, 3);
    earlier.is(Level::Ready, "pauses its job requests for 1h");
    earlier.polls.update(&counts(100, 3), None);
    earlier.is(Level::Ready, "waiting for an accepted one");
    earlier.polls.update(&counts(100, 4), None);
    earlier.is(Level::Ready, "rejects its token");
    earlier.polls.update(&counts(101, 4), None);
    earlier.is(Level::Polling, "");
    earlier.polls.update(&counts(102, 7), None);
    earlier.is(Level::Ready, "pauses its job requests for 1h");

    // The runner does not count these as failed health checks, so that no limit applies.
    let unanswered =
        |accepted, unanswered| metrics(&[("a", Requests { unanswered, ..self::accepted(accepted) })]);
    let mut earlier = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
    earlier.polls.update(&unanswered(5, 500), None);
    earlier.is(Level::Ready, "waiting for an accepted one");
    earlier.polls.update(&unanswered(6, 501), None);
    earlier.is(Level::Polling, "");
    // A runner that has worked for weeks, in spite of outages.
    let mut earlier = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
    earlier.polls.update(&unanswered(500, 500), None);
    earlier.is(Level::Polling, "");

    // Requests that the runner cannot send count as failed health checks only.
    let mut case = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
    case.polls.update(&metrics(&[("a", Requests { health_failures: 3, ..accepted(100) })]), None);
    case.is(Level::Ready, "see the runner's log); 3 job requests failed in total");
}

#[test]
fn unhealthy_requests_limit_decides_disabled_section() {
    let mut config = config(&["a"]);
    config.sections[0].unhealthy_requests_limit = 10;
    config.sections[0].unhealthy_interval = 90 * SECOND;
    let rejected = |count| Requests { rejected: count, health_failures: count, ..accepted(100) };
    let case = |count| {
        let mut case = Case { config: Ok(config.clone()), polls: Polls::default(), ..Case::healthy() };
        case.polls.update(&metrics(&[("a", rejected(count))]), Some(&config));
        case
    };
    case(9).is(Level::Polling, "");
    let reason = "10 job requests failed in total; after 10 consecutive failures (unhealthy_requests_limit) the runner pauses its job requests for 1m30s";
    case(10).is(Level::Ready, reason);
}

#[test]
fn one_successful_job_is_working() {
    let with_jobs = |succeeded| Case { succeeded, ..Case::healthy() };
    with_jobs(0).is(Level::Polling, "");
    with_jobs(1).is(Level::Working, "");
    let not_polling = Case { polls: Polls::default(), ..with_jobs(1) };
    not_polling.is(Level::Ready, "no job request");
}

/// The runner sends a job request only if a slot is free.
#[test]
fn idle_section_is_not_a_fault_while_all_slots_are_busy() {
    let case = |jobs, concurrent, b: Requests| {
        let mut polls = Polls::default();
        polls.update(&metrics(&[("a", accepted(1)), ("b", b)]), None);
        let metrics = RunnerMetrics { jobs, ..metrics(&[]) };
        let answers = Some(Answers { metrics, ..Answers::default() });
        let config = RunnerConfig { concurrent, ..config(&["a", "b"]) };
        Case { config: Ok(config), answers, polls, ..Case::healthy() }
    };
    let none = Requests::default();
    case(Some(4), Some(4), none).is(Level::Polling, "");
    case(Some(3), Some(4), none).is(Level::Ready, "no job request has had a response yet");
    case(None, Some(4), none).is(Level::Ready, "no job request has had a response yet");
    case(Some(4), None, none).is(Level::Ready, "no job request has had a response yet");
    let rejected = Requests { rejected: 1, health_failures: 1, ..none };
    case(Some(4), Some(4), rejected).is(Level::Ready, "rejects its token");
    assert_eq!(
        case(Some(4), Some(4), none).polls.polling(&config(&["a", "b"])),
        1,
        "its requests are unknown"
    );
    let failing = Requests { executor_failures: 1, ..none };
    case(Some(4), Some(4), failing).is(Level::Ready, "the executor has no free machine, or fails");
    // No section polls.
    let idle = Case { polls: Polls::default(), ..case(Some(4), Some(4), none) };
    idle.is(Level::Ready, "no job request has had a response yet");
}

/// Status -1 in the metrics. The runner does not count it as a failed health check.
#[test]
fn request_without_valid_response_is_not_accepted() {
    let mut case = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
    let mut is = |requests, level, reason| {
        case.polls.update(&metrics(&[("a", requests)]), None);
        case.is(level, reason);
    };
    is(Requests { unanswered: 1, ..accepted(0) }, Level::Ready, "its job requests failed");
    is(Requests { unanswered: 9, ..accepted(0) }, Level::Ready, "its job requests failed");
    is(Requests { unanswered: 9, ..accepted(1) }, Level::Polling, "");
    // Until the silence lasts too long.
    is(Requests { unanswered: 10, ..accepted(1) }, Level::Polling, "");
}

#[test]
fn cause_of_missing_requests_is_a_reason() {
    let case = |requests| {
        let mut case = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
        case.polls.update(&metrics(&[("a", requests)]), None);
        case
    };
    let none = Requests::default();
    case(Requests { without_machine: 1, ..none })
        .is(Level::Ready, "the executor has no free machine, or fails");
    case(Requests { executor_failures: 1, ..none })
        .is(Level::Ready, "the executor has no free machine, or fails");
    case(Requests { executor_failures: 1, ..accepted(1) }).is(Level::Polling, "");
    let disabled = "waiting for an accepted one (check URL, DNS, TLS, proxy and executor; see the runner's log); 3 job requests failed";
    case(Requests { health_failures: 3, ..none }).is(Level::Ready, disabled);
}

/// A reload of the configuration makes the runner try a disabled section again.
#[test]
fn failures_before_a_reload_do_not_disable() {
    let rejected = |count| Requests { rejected: count, health_failures: count, ..accepted(0) };
    let mut case = Case { config: Ok(config(&["a"])), polls: Polls::default(), ..Case::healthy() };
    let mut reason = |config_loads, count| {
        let metrics = RunnerMetrics { config_loads, ..metrics(&[("a", rejected(count))]) };
        case.polls.update(&metrics, None);
        case.health_level().1
    };
    assert!(reason(1, 3).contains("pauses its job requests for 1h"));
    assert!(!reason(2, 4).contains("pauses"));
    assert!(!reason(2, 5).contains("pauses"));
    assert!(reason(2, 6).contains("3 job requests failed in total"));
}

#[test]
fn job_router_requests_count_as_polling() {
    let mut config = config(&["a", "b"]);
    config.sections[0].uses_job_router = true;
    let mut case = Case { config: Ok(config.clone()), polls: Polls::default(), ..Case::healthy() };
    let mut probe = |circuit_breaker, requests, a: Requests| {
        let router = Some(JobRouter { circuit_breaker, requests, fallbacks: 0 });
        let configured = configured(&[("a", "a"), ("b", "b")]);
        let seen = RunnerMetrics { router, configured, ..metrics(&[("a", a), ("b", accepted(1))]) };
        case.polls.update(&seen, Some(&config));
        case.health_level()
    };
    let failed = |health_failures| Requests { health_failures, ..Requests::default() };
    let (level, reason) = probe(CircuitBreaker::Closed, 0, failed(0));
    assert!(level == Level::Ready && reason.contains("through the job router"), "{reason}");
    assert_eq!(probe(CircuitBreaker::Closed, 1, failed(0)).0, Level::Polling);
    // A request that fails its health check is no evidence.
    assert_eq!(probe(CircuitBreaker::Closed, 2, failed(1)).0, Level::Ready);
    assert_eq!(probe(CircuitBreaker::Closed, 3, failed(1)).0, Level::Polling);
    assert_eq!(probe(CircuitBreaker::Closed, 3, failed(2)).0, Level::Ready);
    let (level, reason) = probe(CircuitBreaker::Open, 4, failed(3));
    assert!(level == Level::Ready && reason.contains("circuit breaker open"), "{reason}");
    let direct = Requests { accepted: 1, ..failed(3) };
    assert_eq!(probe(CircuitBreaker::Open, 4, direct).0, Level::Polling, "it polls GitLab directly");
}

/// The label is a part of the token.
#[test]
fn section_settings_are_those_of_the_same_name() {
    let mut config = config(&["limited", "routed"]);
    config.sections[0].unhealthy_requests_limit = 10;
    config.sections[1].uses_job_router = true;
    let mut case = Case { config: Ok(config.clone()), polls: Polls::default(), ..Case::healthy() };
    for requests in [0, 1] {
        let failing = Requests { rejected: 9, health_failures: 9, ..accepted(100) };
        let router = Some(JobRouter { circuit_breaker: CircuitBreaker::Closed, requests, fallbacks: 0 });
        let configured = configured(&[("t3_aaaaaa", "limited"), ("t1_bbbbbb", "routed")]);
        let sections = metrics(&[("t3_aaaaaa", failing), ("t1_bbbbbb", Requests::default())]);
        case.polls.update(&RunnerMetrics { router, configured, ..sections }, Some(&config));
    }
    case.is(Level::Polling, "");
}

#[test]
fn polling_requires_every_configured_section() {
    let mut case = Case { polls: Polls::default(), ..Case::healthy() };
    case.polls.update(&metrics(&[("a", accepted(1))]), None);
    case.is(Level::Ready, "1 of 2 [[runners]] sections: no job request has had a response yet");
    let rejected = Requests { rejected: 1, ..Requests::default() };
    let counters = metrics(&[("a", accepted(2)), ("old", rejected), ("new", accepted(1))]);
    case.polls.update(&counters, None);
    case.is(Level::Ready, "runner (old): GitLab rejects its token");
    assert_eq!(case.polls.polling(&config(&["a", "b"])), 2);
    // The token of a section was replaced. The counters of the old one stay.
    let configured = configured(&[("a", "a"), ("new", "b")]);
    case.polls.update(&RunnerMetrics { configured, ..counters }, None);
    case.is(Level::Polling, "");
    let configured = self::configured(&[("a", "a"), ("newer", "b")]);
    case.polls.update(&RunnerMetrics { configured, ..metrics(&[("newer", rejected)]) }, None);
    case.is(Level::Ready, "runner \"b\" (newer): GitLab rejects its token");
}
