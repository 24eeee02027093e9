//! The runner's metrics, as `lab::runner::endpoints` writes them: those that the wrapper reads.

use std::fmt::Write as _;

use tokio::time::Instant;

use super::{Kind, Mode, Runner, Section};
use crate::simulation::gitlab::URL;

impl Runner {
    /// The metrics of this moment; `None` while its HTTP server does not listen.
    pub(in crate::simulation) fn page(&self) -> Option<String> {
        if !self.has_server() {
            return None;
        }
        let mut page = String::with_capacity(2048);
        for (number, section) in self.sections.iter().enumerate() {
            self.section(&mut page, number, section);
        }
        let _written = write!(
            page,
            "gitlab_runner_configuration_loaded_total 1\n\
             gitlab_runner_version_info{{name=\"gitlab-runner\",revision=\"0000000\",version=\"19.4.0\"}} 1\n"
        );
        self.state(&mut page);
        self.router(&mut page);
        Some(page)
    }

    fn state(&self, page: &mut String) {
        if self.setup.reports_state() {
            let state = match self.mode {
                Mode::Finishing => "graceful-shutdown",
                Mode::Aborting => "forceful-shutdown",
                Mode::BeforeExec | Mode::Loading | Mode::Working | Mode::Exiting => "running",
            };
            let _written = writeln!(page, "gitlab_runner_process_state_info{{state=\"{state}\"}} 1");
        }
    }

    /// `/debug/jobs/list`.
    pub(in crate::simulation) fn list(&self) -> String {
        let mut list = String::new();
        for job in &self.jobs {
            let state = if self.reports.contains_key(job) { "success" } else { "running" };
            let age = self.since.get(job).map_or(0, |since| since.elapsed().as_millis());
            let _written = writeln!(list, "url={URL}/-/jobs/{job} state={state} duration={age}ms");
        }
        list
    }

    fn has_server(&self) -> bool {
        let is_up = matches!(self.mode, Mode::Working | Mode::Finishing | Mode::Aborting);
        self.setup.kind != Kind::NoServer && is_up
    }

    /// The part of the metrics that the wrapper reads before SIGQUIT: the real one leaves out the other lines while it reads.
    pub(in crate::simulation) fn requests_page(&self) -> Option<String> {
        if !self.has_server() {
            return None;
        }
        let mut page = String::with_capacity(1024);
        for (number, section) in self.sections.iter().enumerate() {
            self.requests(&mut page, number, section);
        }
        self.state(&mut page);
        self.router(&mut page);
        Some(page)
    }

    fn router(&self, page: &mut String) {
        if self.setup.kind == Kind::Routed {
            let _written = write!(
                page,
                "gitlab_runner_job_router_circuit_breaker_state 0\n\
                 gitlab_runner_job_router_get_job_duration_seconds_count {}\n",
                self.routed + self.counted()
            );
        }
    }

    /// The cancelled requests that it has counted.
    fn counted(&self) -> u64 {
        let counted = self.sections.iter().filter_map(|section| section.cancelled);
        counted.filter(|(at, _)| *at <= Instant::now()).map(|(_, count)| count).sum()
    }

    fn section(&self, page: &mut String, number: usize, section: &Section) {
        self.requests(page, number, section);
        let _written = write!(
            page,
            "gitlab_runner_limit{{runner=\"s{number}\",runner_name=\"r{number}\"}} 0\n\
             gitlab_runner_job_duration_seconds_count{{runner=\"s{number}\"}} {}\n",
            section.jobs_ended
        );
        if section.feeds > 0 {
            let _written = writeln!(
                page,
                "gitlab_runner_worker_health_check_failures_total{{runner=\"s{number}\"}} {}",
                section.health_failures
            );
        }
    }

    fn requests(&self, page: &mut String, number: usize, section: &Section) {
        // Through the router, no request counts with a status.
        let counted = section.cancelled.filter(|(at, _)| *at <= Instant::now()).map_or(0, |(_, count)| count);
        let uncounted = section.cancelled.map_or(0, |(_, count)| count) - counted;
        let counted = if self.setup.kind == Kind::Routed { 0 } else { counted };
        let statuses = [
            ("201", section.accepted),
            ("403", section.rejected),
            ("-1", section.unanswered + counted),
            ("500", section.other),
        ];
        // A series exists from its first value on.
        for (status, count) in statuses.into_iter().filter(|(_, count)| *count > 0) {
            let _written = writeln!(
                page,
                "gitlab_runner_api_request_statuses_total{{endpoint=\"request_job\",method=\"post\",\
                 runner=\"s{number}\",status=\"{status}\"}} {count}"
            );
        }
        if section.feeds == 0 {
            return;
        }
        let jobs = self.section_of.values().filter(|of| **of == number).count();
        let jobs = jobs.saturating_sub(section.reporting);
        let begun = section.begun;
        let _written = write!(
            page,
            "gitlab_runner_jobs{{runner=\"s{number}\"}} {jobs}\n\
             gitlab_runner_jobs_total{{runner=\"s{number}\"}} {begun}\n"
        );
        if self.setup.kind != Kind::Old {
            let _written = write!(
                page,
                "gitlab_runner_request_concurrency{{runner=\"s{number}\"}} {}\n\
                 gitlab_runner_request_concurrency_hard_limit{{runner=\"s{number}\"}} {}\n\
                 gitlab_runner_worker_feeds_total{{runner=\"s{number}\"}} {}\n",
                (section.requests.len() + section.reporting) as u64 + uncounted,
                self.setup.request_concurrency,
                section.feeds
            );
        }
    }
}
