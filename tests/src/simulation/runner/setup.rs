//! The configuration of a runner, which all processes of a host have.

use std::{fmt::Write as _, time::Duration};

use grit_wrapper::testing::RunnerConfig;

use crate::simulation::{gitlab::URL, random::Random, scenario::GitlabSettings};

/// What the runner reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulation) enum Kind {
    /// All metrics.
    Current,
    /// It reports neither its open requests, nor its turns, nor the state of its process (before 19.1).
    Old,
    /// Its configuration has no `listen_address`.
    NoServer,
    /// Its requests go through the job router.
    Routed,
}

#[derive(Clone, Debug)]
pub(in crate::simulation) struct Setup {
    pub(in crate::simulation) kind: Kind,
    /// The number of jobs that it runs at the same time.
    pub(in crate::simulation) concurrent: usize,
    pub(super) sections: usize,
    pub(super) request_concurrency: usize,
    pub(in crate::simulation) check_interval: Duration,
    /// Its limit for the cleanup after SIGTERM.
    pub(in crate::simulation) shutdown_timeout: Duration,
    /// How often it reports the end of a job.
    pub(super) report_attempts: u32,
    /// As the wrapper reads it.
    pub(in crate::simulation) config: RunnerConfig,
}

impl Setup {
    /// Whether the runner reports its open requests.
    pub(in crate::simulation) fn is_measured(&self) -> bool {
        matches!(self.kind, Kind::Current | Kind::Routed)
    }

    /// Whether the runner lists its jobs.
    pub(in crate::simulation) fn lists_jobs(&self) -> bool {
        self.kind != Kind::NoServer
    }

    /// Whether the runner reports that it aborts its jobs.
    pub(in crate::simulation) fn reports_state(&self) -> bool {
        self.is_measured()
    }

    pub(in crate::simulation) fn new(
        settings: &GitlabSettings,
        system_id: &str,
        random: &mut Random,
    ) -> Self {
        let concurrent = usize::try_from(random.below(4) + 1).unwrap_or(1);
        let shutdown_timeout = Duration::from_secs(*random.pick(&[30, 30, 120]));
        let report_attempts = *random.pick(&[10, 10, 10, 2, 3]);
        let text = text(settings, concurrent, shutdown_timeout, report_attempts);
        Self {
            kind: settings.runner,
            concurrent,
            sections: settings.sections,
            request_concurrency: settings.request_concurrency,
            check_interval: settings.check_interval,
            shutdown_timeout,
            report_attempts,
            config: RunnerConfig::parse(&text, system_id).expect("a valid configuration"),
        }
    }
}

/// The `config.toml`.
fn text(
    settings: &GitlabSettings,
    concurrent: usize,
    shutdown_timeout: Duration,
    report_attempts: u32,
) -> String {
    let (seconds, limit) = (settings.check_interval.as_secs(), shutdown_timeout.as_secs());
    let mut text =
        format!("concurrent = {concurrent}\ncheck_interval = {seconds}\nshutdown_timeout = {limit}\n");
    if settings.runner != Kind::NoServer {
        text += "listen_address = \"localhost:9252\"\n";
    }
    for section in 0..settings.sections {
        let id = match settings.has_runner_ids {
            true => format!("id = {}\n", runner_id(section)),
            false => String::new(),
        };
        let _written = write!(
            text,
            "[[runners]]\nname = \"r{section}\"\nurl = \"{URL}\"\n{id}token = \"glrt-{section}\"\n\
             request_concurrency = {}\njob_status_final_update_retry_limit = {report_attempts}\n",
            settings.request_concurrency
        );
        if settings.runner == Kind::Routed {
            text += "[runners.feature_flags]\nFF_USE_JOB_ROUTER = true\n";
        }
    }
    text
}

/// The runner at GitLab that a section belongs to. All hosts have the same ones, with their own system ids.
pub(in crate::simulation) fn runner_id(section: usize) -> u64 {
    11 + section as u64
}
