//! Parses the runner's metrics that are relevant for its health.

use std::{borrow::Cow, collections::BTreeMap};

/// The result of one read of the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunnerMetrics {
    /// The sum of `gitlab_runner_jobs`; absent before the first poll, which does not mean 0.
    pub(crate) jobs: Option<usize>,
    pub(crate) process_state: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) revision: Option<String>,
    /// By short token, which is the label of a section.
    pub(super) sections: BTreeMap<String, Requests>,
    /// What the runner counts by the name of a section, too. Results of requests, and open requests, have the short token only.
    pub(super) named: BTreeMap<SectionId, Requests>,
    /// The sections of the runner's current configuration, and their maximum numbers of running jobs; 0 means unlimited.
    pub(super) configured: BTreeMap<SectionId, u64>,
    /// Jobs that have ended, and those of them that have failed. Canary jobs of boot-verify do not count.
    pub(super) jobs_ended: u64,
    pub(crate) jobs_failed: u64,
    /// Jobs that failed because the runner was stopped forcefully, from 19.1 on.
    pub(super) jobs_interrupted: u64,
    /// Responses by which GitLab has received the report of a job's end, and has requested the runner to repeat it.
    pub(super) unfinished_reports: u64,
    /// How often the configuration was loaded. 1: it is the one of the start.
    pub(super) config_loads: u64,
    /// How often the runner has given a section its turn to request a job.
    pub(super) feeds: Option<u64>,
    /// The client of the job router, from 19.x on.
    pub(crate) router: Option<JobRouter>,
}

/// The short token and the name of a section. Older runners do not report the name. Tokens of one group can begin alike.
pub(super) type SectionId = (String, Option<String>);

/// The runner's client of the job router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobRouter {
    pub(crate) circuit_breaker: CircuitBreaker,
    /// Job requests that were completed, with any result.
    pub(crate) requests: u64,
    /// Job requests that were sent to GitLab directly instead.
    pub(crate) fallbacks: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CircuitBreaker {
    #[default]
    Closed,
    Open,
    HalfOpen,
}

impl CircuitBreaker {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Counters of the job requests of one section since the runner's start, and its jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    pub(super) accepted: u64,
    /// 401 and 403: GitLab rejects the token.
    pub(super) rejected: u64,
    /// Without a valid response. The runner's name for it is status -1.
    pub(super) unanswered: u64,
    pub(super) other: u64,
    /// Requests that are open now, and the maximum number; `None` from an older runner.
    pub(super) open: Option<u64>,
    pub(super) limit: Option<u64>,
    /// Failed health checks; by default the third consecutive one disables the section. A request counts if its status is 403, or if it
    /// cannot be sent, because of its executor or TLS files for example.
    pub(super) health_failures: u64,
    /// How often the executor prevented a job request: it had no free machine, or it failed.
    pub(super) without_machine: u64,
    pub(super) executor_failures: u64,
    /// Running jobs.
    pub(super) jobs: u64,
    /// Jobs since the runner's start. Each counts from the end of its request on, which includes the job's first report to GitLab.
    pub(super) jobs_begun: u64,
    /// How often the runner has given the section its turn to request a job. Only by name.
    pub(super) turns: u64,
}

impl Requests {
    /// Requests with a result other than 2xx.
    pub(super) fn failed(&self) -> u64 {
        self.rejected.saturating_add(self.unanswered).saturating_add(self.other)
    }

    /// Requests with a result.
    pub(super) fn results(&self) -> u64 {
        self.accepted.saturating_add(self.failed())
    }
}

impl RunnerMetrics {
    /// Whether they contain the open job requests of a section.
    pub(super) fn reports_requests(&self) -> bool {
        self.sections.values().any(|requests| requests.open.is_some())
    }

    /// Adds one line of the metrics, if it is relevant.
    pub(crate) fn add_line(&mut self, line: &str) {
        if line.starts_with("gitlab_runner_")
            && let Some(sample) = Sample::parse(line)
        {
            self.add(&sample);
        }
    }

    /// Jobs that have ended successfully.
    pub(super) fn jobs_succeeded(&self) -> u64 {
        self.jobs_ended.saturating_sub(self.jobs_failed)
    }

    fn router(&mut self) -> &mut JobRouter {
        self.router.get_or_insert_default()
    }

    /// The section that the sample is about.
    fn section(&mut self, sample: &Sample<'_>) -> Option<&mut Requests> {
        let label = sample.label("runner")?;
        Some(self.sections.entry(label.into_owned()).or_default())
    }

    /// The same for the name of the section, if the sample has it.
    fn named(&mut self, sample: &Sample<'_>) -> Option<&mut Requests> {
        let id = (sample.label("runner")?.into_owned(), Some(sample.label("runner_name")?.into_owned()));
        Some(self.named.entry(id).or_default())
    }

    /// Changes the counters of the section, and those of its name.
    fn count(&mut self, sample: &Sample<'_>, change: impl Fn(&mut Requests)) {
        self.named(sample).map(&change);
        self.section(sample).map(&change);
    }

    fn add(&mut self, sample: &Sample<'_>) {
        match sample.name {
            "gitlab_runner_jobs" => {
                let jobs = sample.count();
                *self.jobs.get_or_insert(0) += usize::try_from(jobs).unwrap_or(usize::MAX);
                self.count(sample, |section| section.jobs += jobs);
            }
            "gitlab_runner_jobs_total" => self.count(sample, |section| section.jobs_begun += sample.count()),
            "gitlab_runner_process_state_info" if sample.count() > 0 => {
                self.process_state = sample.label("state").map(Cow::into_owned);
            }
            "gitlab_runner_version_info" => {
                self.version = sample.label("version").map(Cow::into_owned);
                self.revision = sample.label("revision").map(Cow::into_owned);
            }
            "gitlab_runner_api_request_statuses_total"
                if sample.label("endpoint").as_deref() == Some("request_job") =>
            {
                let Some(requests) = self.section(sample) else { return };
                match sample.label("status").as_deref() {
                    Some(status) if status.starts_with('2') => requests.accepted += sample.count(),
                    Some("401" | "403") => requests.rejected += sample.count(),
                    Some("-1") => requests.unanswered += sample.count(),
                    _ => requests.other += sample.count(),
                }
            }
            "gitlab_runner_api_request_statuses_total"
                if sample.label("endpoint").as_deref() == Some("update_job")
                    && matches!(sample.label("status").as_deref(), Some("202" | "412")) =>
            {
                self.unfinished_reports += sample.count();
            }
            "gitlab_runner_limit" => {
                let Some(section) = sample.label("runner") else { return };
                let name = sample.label("runner_name").map(Cow::into_owned);
                self.configured.insert((section.into_owned(), name), sample.count());
            }
            "gitlab_runner_request_concurrency" => {
                if let Some(section) = self.section(sample) {
                    *section.open.get_or_insert(0) += sample.count();
                }
            }
            "gitlab_runner_job_duration_seconds_count" => self.jobs_ended += sample.count(),
            "gitlab_runner_request_concurrency_hard_limit" => {
                if let Some(section) = self.section(sample) {
                    section.limit = Some(sample.count());
                }
            }
            "gitlab_runner_failed_jobs_total" => {
                self.jobs_failed += sample.count();
                if sample.label("failure_reason").as_deref() == Some("runner_interrupted") {
                    self.jobs_interrupted += sample.count();
                }
            }
            "gitlab_runner_worker_feeds_total" => {
                *self.feeds.get_or_insert(0) += sample.count();
                if let Some(named) = self.named(sample) {
                    named.turns += sample.count();
                }
            }
            "gitlab_runner_configuration_loaded_total" => self.config_loads = sample.count(),
            "gitlab_runner_job_router_circuit_breaker_state" => {
                self.router().circuit_breaker = match sample.count() {
                    0 => CircuitBreaker::Closed,
                    1 => CircuitBreaker::Open,
                    _ => CircuitBreaker::HalfOpen,
                };
            }
            "gitlab_runner_job_router_get_job_duration_seconds_count" => {
                self.router().requests += sample.count();
            }
            "gitlab_runner_job_router_fallbacks_total" => self.router().fallbacks += sample.count(),
            "gitlab_runner_worker_health_check_failures_total" => {
                self.count(sample, |section| section.health_failures += sample.count());
            }
            "gitlab_runner_worker_processing_failures_total" => {
                let failure = sample.label("failure_type");
                self.count(sample, |section| match failure.as_deref() {
                    Some("no_free_executor") => section.without_machine += sample.count(),
                    Some("other") => section.executor_failures += sample.count(),
                    // Jobs that failed.
                    _ => {}
                });
            }
            _ => {}
        }
    }
}

/// One line: name, labels, value.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (name, labels, rest) = match line.find('{') {
            Some(open) => {
                let close = open + line[open..].rfind('}')?;
                (&line[..open], &line[open + 1..close], &line[close + 1..])
            }
            None => {
                let (name, rest) = line.split_once(' ')?;
                (name, "", rest)
            }
        };
        // A timestamp may follow the value.
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as-casts of floats saturate"
    )]
    fn count(&self) -> u64 {
        self.value as u64
    }

    fn label(&self, wanted: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        loop {
            let end = rest.bytes().position(|byte| byte == b'=')?;
            let (name, tail) = (&rest[..end], &rest[end + 1..]);
            let (value, tail) = quoted(tail.strip_prefix('"')?)?;
            if name.trim_start_matches([',', ' ']) == wanted {
                return Some(value);
            }
            rest = tail;
        }
    }
}

/// The text up to the closing quote, unescaped, and the rest after the quote.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.bytes().position(|byte| matches!(byte, b'"' | b'\\'))?;
    if text.as_bytes()[end] == b'"' {
        return Some((text[..end].into(), &text[end + 1..]));
    }
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value.into(), &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> RunnerMetrics {
        let mut metrics = RunnerMetrics::default();
        text.lines().for_each(|line| metrics.add_line(line));
        metrics
    }

    #[test]
    fn runner_metrics_are_parsed() {
        let text = r#"
# HELP gitlab_runner_jobs The current number of running builds.
# TYPE gitlab_runner_jobs gauge
gitlab_runner_jobs{executor_stage="idle",runner="abc",runner_name="a, \"b\"}",stage="idle",state="idle",system_id="s"} 0
gitlab_runner_jobs{executor_stage="docker_run",runner="abc",stage="step_script",state="running",system_id="s"} 3
gitlab_runner_jobs{executor_stage="docker_run",runner="def",stage="step_script",state="running",system_id="s"} 2
gitlab_runner_jobs_total{runner="abc",runner_name="a",system_id="s"} 11
gitlab_runner_api_request_statuses_total{endpoint="request_job",method="post",runner="abc",status="204",system_id="s"} 1.2e+01
gitlab_runner_api_request_statuses_total{endpoint="request_job",runner="abc",status="201"} 1 1700000000000
gitlab_runner_api_request_statuses_total{endpoint="request_job",runner="def",status="403"} 4
gitlab_runner_api_request_statuses_total{endpoint="request_job",runner="def",status="-1"} 5
gitlab_runner_api_request_statuses_total{endpoint="request_job",runner="def",status="500"} 6
gitlab_runner_api_request_statuses_total{endpoint="update_job",runner="def",status="200"} 9
gitlab_runner_worker_processing_failures_total{failure_type="no_free_executor",runner="abc",runner_name="x"} 7
gitlab_runner_worker_processing_failures_total{failure_type="other",runner="abc",runner_name="x"} 8
gitlab_runner_worker_processing_failures_total{failure_type="job_failure",runner="abc",runner_name="x"} 9
gitlab_runner_worker_feeds_total{runner="abc",runner_name="a"} 12
gitlab_runner_worker_health_check_failures_total{runner="def",runner_name="x"} 3
gitlab_runner_limit{runner="abc",runner_name="a",system_id="s"} 0
gitlab_runner_limit{runner="def",system_id="s"} 5
gitlab_runner_process_state_info{state="running"} 1
gitlab_runner_version_info{name="gitlab-runner",revision="r1",version="19.2.0"} 1
gitlab_runner_job_duration_seconds_bucket{mode="traditional",runner="abc",le="30"} 2
gitlab_runner_job_duration_seconds_count{mode="traditional",runner="abc"} 8
gitlab_runner_job_duration_seconds_count{mode="traditional",runner="def"} 1
gitlab_runner_failed_jobs_total{failure_reason="script_failure",mode="traditional",runner="abc"} 2
gitlab_runner_failed_jobs_total{failure_reason="runner_system_failure",mode="traditional",runner="def"} 1
gitlab_runner_failed_jobs_total{failure_reason="runner_interrupted",mode="traditional",runner="abc"} 3
gitlab_runner_failed_jobs_total{failure_reason="runner_interrupted",mode="traditional",runner="def"} 1
gitlab_runner_configuration_loaded_total 2
gitlab_runner_job_router_circuit_breaker_state 2
gitlab_runner_job_router_get_job_duration_seconds_count 7
gitlab_runner_job_router_fallbacks_total{reason="breaker_open"} 3
gitlab_runner_job_router_fallbacks_total{reason="no_discovery"} 1
gitlab_runner_broken{
"#;
        let metrics = parse(text);
        assert_eq!(metrics.jobs, Some(5));
        assert_eq!(metrics.process_state.as_deref(), Some("running"));
        assert_eq!((metrics.version.as_deref(), metrics.revision.as_deref()), (Some("19.2.0"), Some("r1")));
        let [abc, def] = ["abc", "def"].map(|section| metrics.sections[section]);
        let id = |label: &str, name: Option<&str>| (label.to_owned(), name.map(str::to_owned));
        assert_eq!(metrics.configured, [(id("abc", Some("a")), 0), (id("def", None), 5)].into());
        let named = |label, name| metrics.named[&id(label, Some(name))];
        assert_eq!((named("abc", "a").jobs_begun, named("abc", "a").turns), (11, 12));
        assert_eq!((named("abc", "x").executor_failures, named("def", "x").health_failures), (8, 3));
        let prevented = Requests { without_machine: 7, executor_failures: 8, ..Requests::default() };
        assert_eq!(abc, Requests { accepted: 13, jobs: 3, jobs_begun: 11, ..prevented });
        assert_eq!((metrics.jobs_ended, metrics.jobs_failed, metrics.jobs_succeeded()), (9, 7, 2));
        assert_eq!(metrics.jobs_interrupted, 4);
        assert_eq!(metrics.config_loads, 2);
        let router = JobRouter { circuit_breaker: CircuitBreaker::HalfOpen, requests: 7, fallbacks: 4 };
        assert_eq!(metrics.router, Some(router));
        let failed = Requests { jobs: 2, rejected: 4, unanswered: 5, other: 6, ..Requests::default() };
        assert_eq!(def, Requests { health_failures: 3, ..failed });
    }

    #[test]
    fn missing_jobs_metric_is_not_zero() {
        assert_eq!((parse("").jobs, parse("").router), (None, None));
        assert_eq!(parse("gitlab_runner_jobs{state=\"idle\"} 0\n").jobs, Some(0));
    }
}
