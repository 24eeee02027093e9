//! The HTTP server that `listen_address` opens.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use hyper::{Method, Request, StatusCode, body::Incoming};

use super::{
    Metrics, Version,
    config::Section,
    state::{Counts, Inner, State},
};
use crate::lab::http::{self, Answer};

/// The data of the endpoints.
#[derive(Debug)]
pub(super) struct Endpoints {
    pub(super) state: Arc<State>,
    pub(super) version: Version,
    pub(super) metrics: Metrics,
    /// Nothing follows after the last job.
    pub(super) exits_at_once: bool,
    pub(super) system_id: String,
    /// Since 1970.
    pub(super) started: std::time::Duration,
    /// Number of reads of the metrics.
    pub(super) reads: AtomicUsize,
}

pub(super) async fn serve(listener: tokio::net::TcpListener, endpoints: Arc<Endpoints>) {
    http::serve(listener, move |request| {
        let endpoints = Arc::clone(&endpoints);
        async move {
            // It exits now, and only its report to the event log takes time.
            let exits = endpoints.state.stopping.is_cancelled() && endpoints.state.lock().busy_workers == 0;
            if exits && endpoints.exits_at_once {
                std::future::pending::<()>().await;
            }
            if endpoints.metrics == Metrics::Silent && request.uri().path() == "/metrics" {
                std::future::pending::<()>().await;
            }
            endpoints.answer(&request)
        }
    })
    .await;
}

impl Endpoints {
    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let inner = self.state.lock();
        match request.uri().path() {
            "/metrics" if request.method() != Method::GET && request.method() != Method::HEAD => {
                http::text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n")
            }
            // As upstream, two metrics with the same labels are an error.
            "/metrics" if self.has_equal_sections(&inner) => http::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "collected before with the same name and label values\n",
            ),
            "/metrics" => match self.metrics {
                Metrics::Full | Metrics::Silent => http::text(StatusCode::OK, self.metrics(&inner)),
                Metrics::Foreign => http::text(StatusCode::OK, "# TYPE node_load1 gauge\nnode_load1 0.5\n"),
                Metrics::Broken => http::text(StatusCode::INTERNAL_SERVER_ERROR, "out of order\n"),
            },
            "/debug/jobs/list" => {
                let mut answer = http::text(StatusCode::OK, jobs_list(&inner));
                if let Answer::Reply(reply) = &mut answer {
                    reply
                        .headers_mut()
                        .insert("x-list-version", hyper::header::HeaderValue::from_static("2"));
                }
                answer
            }
            "/debug/process/state" if self.version.has_process_state() => {
                http::text(StatusCode::OK, format!("{}\n", inner.process.name()))
            }
            "/health/ready" if self.version.has_health_ready() => {
                if inner.boot_verified {
                    http::text(StatusCode::OK, "ready\n")
                } else {
                    http::text(StatusCode::SERVICE_UNAVAILABLE, "boot-verify pending\n")
                }
            }
            _ => http::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn has_equal_sections(&self, inner: &Inner) -> bool {
        let mut seen = BTreeSet::new();
        let mut sections = inner.config.runners.iter();
        !sections.all(|section| seen.insert((short(&section.token, self.version), &section.name)))
    }

    fn metrics(&self, inner: &Inner) -> String {
        let mut text = Exposition::default();
        text.family("gitlab_runner_api_request_statuses_total", "counter");
        // As upstream, the sections whose tokens begin alike have one counter.
        let mut statuses: BTreeMap<_, usize> = BTreeMap::new();
        for ((token, endpoint, status, method), count) in &inner.statuses {
            *statuses.entry((short(token, self.version), *endpoint, *status, *method)).or_default() += count;
        }
        for ((runner, endpoint, status, method), count) in statuses {
            let labels = [
                ("endpoint", endpoint),
                ("method", method),
                ("runner", runner),
                ("status", &status.to_string()),
                ("system_id", &self.system_id),
            ];
            text.sample("gitlab_runner_api_request_statuses_total", &labels, count as f64);
        }
        text.family("gitlab_runner_concurrent", "gauge");
        text.sample("gitlab_runner_concurrent", &[], inner.config.concurrent as f64);
        text.family("gitlab_runner_configuration_loaded_total", "counter");
        text.sample("gitlab_runner_configuration_loaded_total", &[], inner.config_loads as f64);
        text.family("gitlab_runner_configuration_loading_error_total", "counter");
        text.sample("gitlab_runner_configuration_loading_error_total", &[], inner.config_errors as f64);
        self.failed_jobs(inner, &mut text);
        self.per_section(inner, &mut text, "gitlab_runner_job_duration_seconds_count", "counter", |token| {
            inner.jobs_ended.get(token).copied()
        });
        job_router(inner, &mut text);
        self.jobs(inner, &mut text);
        self.per_section(inner, &mut text, "gitlab_runner_jobs_total", "counter", |token| {
            inner.jobs_total.get(token).copied()
        });
        text.family("gitlab_runner_limit", "gauge");
        for section in &inner.config.runners {
            let labels = self.section(&section.token, &section.name);
            text.sample("gitlab_runner_limit", &labels, section.limit as f64);
        }
        if self.version.has_process_state() {
            text.family("gitlab_runner_process_state_info", "gauge");
            text.sample("gitlab_runner_process_state_info", &[("state", inner.process.name())], 1.0);
        }
        self.requests(inner, &mut text);
        text.family("gitlab_runner_version_info", "gauge");
        let version = self.version.to_string();
        let labels = [
            ("architecture", "amd64"),
            ("branch", "stand-in"),
            ("built_at", "2026-01-01T00:00:00Z"),
            ("go_version", "none"),
            ("name", "gitlab-runner"),
            ("os", "linux"),
            ("revision", "0000000"),
            ("version", version.as_str()),
        ];
        text.sample("gitlab_runner_version_info", &labels, 1.0);
        self.per_section(inner, &mut text, "gitlab_runner_worker_feeds_total", "counter", |token| {
            inner.feeds.get(token).copied()
        });
        // Present with 0 for a section with requests, as upstream adds 0 at each check.
        self.per_section(
            inner,
            &mut text,
            "gitlab_runner_worker_health_check_failures_total",
            "counter",
            |token| {
                inner
                    .feeds
                    .contains_key(token)
                    .then(|| inner.health_failures.get(token).copied().unwrap_or_default())
            },
        );
        text.family("gitlab_runner_worker_slots_number", "gauge");
        text.sample("gitlab_runner_worker_slots_number", &[], inner.config.concurrent as f64);
        text.family("process_start_time_seconds", "gauge");
        text.sample("process_start_time_seconds", &[], self.started.as_secs_f64());
        text.text
    }

    /// The open job requests. Unlike the other metrics of a section, these do not have the label `runner_name`. They exist from the first request on. Of
    /// the sections whose tokens begin alike, each read shows one: upstream by chance, the stand-in in turn.
    fn requests(&self, inner: &Inner, text: &mut Exposition) {
        type Value = fn(&Section, &Counts) -> usize;
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let mut counters: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for section in &inner.config.runners {
            if let Some(counts) = inner.counts.get(&section.token) {
                counters.entry(short(&section.token, self.version)).or_default().push((section, counts));
            }
        }
        let families: [(&str, &str, Value); 4] = [
            ("", "gauge", |_, counts| counts.requests),
            ("_exceeded_total", "counter", |_, counts| counts.exceeded),
            ("_hard_limit", "gauge", |section, _| section.request_concurrency),
            ("_used_limit", "gauge", |section, _| section.request_concurrency),
        ];
        for (suffix, kind, value) in families {
            let name = format!("gitlab_runner_request_concurrency{suffix}");
            text.family(&name, kind);
            for (runner, of_runner) in &counters {
                let Some((section, counts)) = of_runner.get(read % of_runner.len()) else { continue };
                let labels = [("runner", *runner), ("system_id", &self.system_id)];
                text.sample(&name, &labels, value(section, counts) as f64);
            }
        }
    }

    /// `gitlab_runner_jobs`: the `idle` series of a section exists from its first request on.
    fn jobs(&self, inner: &Inner, text: &mut Exposition) {
        const NAME: &str = "gitlab_runner_jobs";
        text.family(NAME, "gauge");
        for section in &inner.config.runners {
            if inner.counts.contains_key(&section.token) {
                let mut labels = self.section(&section.token, &section.name).to_vec();
                labels.extend([("state", "idle"), ("stage", "idle"), ("executor_stage", "idle")]);
                text.sample(NAME, &labels, 0.0);
            }
            let mut counts = BTreeMap::new();
            for job in inner.jobs.iter().filter(|job| job.section.token == section.token) {
                *counts.entry(job.stages()).or_insert(0_u32) += 1;
            }
            for (stages, count) in counts {
                let mut labels = self.section(&section.token, &section.name).to_vec();
                labels.extend(stages);
                text.sample(NAME, &labels, count.into());
            }
        }
    }

    /// Unlike the other metrics of a section, these do not have the label `system_id`.
    fn failed_jobs(&self, inner: &Inner, text: &mut Exposition) {
        const NAME: &str = "gitlab_runner_failed_jobs_total";
        text.family(NAME, "counter");
        for section in &inner.config.runners {
            for ((_, reason), count) in
                inner.jobs_failed.iter().filter(|((token, _), _)| *token == section.token)
            {
                let labels = [
                    ("failure_reason", reason.name()),
                    ("mode", "traditional"),
                    ("runner", short(&section.token, self.version)),
                    ("runner_name", &section.name),
                ];
                text.sample(NAME, &labels, *count as f64);
            }
        }
    }

    fn per_section(
        &self,
        inner: &Inner,
        text: &mut Exposition,
        name: &str,
        kind: &str,
        value: impl Fn(&str) -> Option<usize>,
    ) {
        text.family(name, kind);
        for section in &inner.config.runners {
            if let Some(value) = value(&section.token) {
                text.sample(name, &self.section(&section.token, &section.name), value as f64);
            }
        }
    }

    fn section<'a>(&'a self, token: &'a str, name: &'a str) -> [(&'a str, &'a str); 3] {
        [("runner", short(token, self.version)), ("runner_name", name), ("system_id", &self.system_id)]
    }
}

/// The metrics of the client of the job router, which exist also if no section uses it.
fn job_router(inner: &Inner, text: &mut Exposition) {
    const PREFIX: &str = "gitlab_runner_job_router";
    let state = format!("{PREFIX}_circuit_breaker_state");
    text.family(&state, "gauge");
    text.sample(&state, &[], if inner.breaker_open { 1.0 } else { 0.0 });
    if inner.fallbacks > 0 {
        let fallbacks = format!("{PREFIX}_fallbacks_total");
        text.family(&fallbacks, "counter");
        text.sample(&fallbacks, &[("reason", "dial_failed")], inner.fallbacks as f64);
    }
    let requests = format!("{PREFIX}_get_job_duration_seconds_count");
    text.family(&requests, "counter");
    text.sample(&requests, &[], inner.routed as f64);
}

/// `/debug/jobs/list`: one line per job.
fn jobs_list(inner: &Inner) -> String {
    let mut text = String::new();
    for job in &inner.jobs {
        let duration = Instant::now().duration_since(job.since);
        let _ = write!(text, "url={}/group/project/-/jobs/{}", job.section.url, job.id);
        for (name, value) in job.stages() {
            let _ = write!(text, " {name}={value}");
        }
        let _ = writeln!(text, " duration={}", go_duration(duration));
    }
    text
}

/// A duration as Go prints it: `1h2m3.5s`, `4.25s`, `120ms`.
fn go_duration(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 {
        return format!("{}ms", duration.as_micros() as f64 / 1000.0);
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = (duration - std::time::Duration::from_secs(seconds - seconds % 60)).as_secs_f64();
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// The part of a token that GitLab Runner of this version shows, for tokens that begin with `glrt-`.
pub(super) fn short(token: &str, version: Version) -> &str {
    let token = token.strip_prefix("glrt-").unwrap_or(token);
    let is_partition = |text: &str| matches!(text, "t1_" | "t2_" | "t3_");
    let partition =
        token.split_at_checked(3).filter(|(text, _)| version.hides_partitions() && is_partition(text));
    let token = partition.map_or(token, |(_, rest)| rest);
    token.get(..9).unwrap_or(token)
}

/// Prometheus' text format. As in the Go client, a family without samples is omitted.
#[derive(Debug, Default)]
struct Exposition {
    text: String,
    header: Option<String>,
}

impl Exposition {
    fn family(&mut self, name: &str, kind: &str) {
        self.header =
            Some(format!("# HELP {name} See GitLab Runner's documentation.\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        if let Some(header) = self.header.take() {
            self.text.push_str(&header);
        }
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| {
                let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
                format!("{name}=\"{value}\"")
            })
            .collect();
        // Writing to a string cannot fail.
        let _ = if labels.is_empty() {
            writeln!(self.text, "{name} {value}")
        } else {
            writeln!(self.text, "{name}{{{}}} {value}", labels.join(","))
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn durations_use_go_format() {
        assert_eq!(go_duration(Duration::from_millis(120)), "120ms");
        assert_eq!(go_duration(Duration::from_millis(4_250)), "4.25s");
        assert_eq!(go_duration(Duration::from_millis(63_500)), "1m3.5s");
        assert_eq!(go_duration(Duration::from_secs(7_325)), "2h2m5s");
    }

    #[test]
    fn tokens_are_shortened_to_nine_characters() {
        let shown = |token, version: &str| short(token, version.parse().unwrap()).to_owned();
        for version in ["18.1.0", "18.2.0"] {
            assert_eq!(shown("glrt-abcdefghijkl", version), "abcdefghi");
            assert_eq!(shown("abc", version), "abc");
        }
        assert_eq!(shown("glrt-t3_abcdefghijkl", "18.1.0"), "t3_abcdef");
        assert_eq!(shown("glrt-t3_abcdefghijkl", "18.2.0"), "abcdefghi");
    }
}
