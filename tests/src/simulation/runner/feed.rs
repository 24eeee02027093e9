//! The tasks that give the sections their turns, request jobs and run them: `lab::runner::feed` and `lab::runner::work`.

use std::time::Duration;

use grit_wrapper::supervise::process::Exit;
use tokio::time::Instant;

use super::{Kind, Mode, Request, Runner, Section};
use crate::simulation::{
    gitlab::{Reply, Sender},
    world::{Happening, Inner},
};

/// GitLab Runner's defaults of `unhealthy_requests_limit` and `unhealthy_interval`.
const UNHEALTHY_LIMIT: u64 = 3;
const UNHEALTHY_INTERVAL: Duration = Duration::from_secs(3600);

/// Nothing is to be seen of the turns while all sections are disabled: they are rarer than those of the real one.
const DISABLED: Duration = Duration::from_secs(60);

/// After each failed report of the end of a job, also after the last one.
const AFTER_FAILURE: Duration = Duration::from_secs(3);

/// Between two steps of the runner without I/O.
const STEP: Duration = Duration::from_millis(1);

impl Section {
    /// Whether it may send requests: too many failures in a row disable it for an hour.
    pub(super) fn is_healthy(&mut self) -> bool {
        if self.failures >= UNHEALTHY_LIMIT {
            if self.checked.elapsed() <= UNHEALTHY_INTERVAL {
                return false;
            }
            self.failures = 0;
            self.checked = Instant::now();
        }
        true
    }

    /// Counts the result of a request. As upstream, only 403 is a failed health check.
    fn count(&mut self, reply: &Reply, is_routed: bool) {
        if !matches!(reply, Reply::Job(_) | Reply::NoJob(_)) {
            self.refused = Some(Instant::now());
        }
        if matches!(reply, Reply::Forbidden) {
            self.failures += 1;
            self.health_failures += 1;
        } else {
            self.failures = 0;
            self.checked = Instant::now();
        }
        let counter = match reply {
            _ if is_routed => return,
            Reply::Job(_) | Reply::NoJob(_) => &mut self.accepted,
            Reply::Forbidden => &mut self.rejected,
            Reply::Failed => &mut self.other,
            Reply::Nothing => &mut self.unanswered,
        };
        *counter += 1;
    }
}

impl Runner {
    /// Whether its jobs have ended after SIGQUIT.
    fn is_finished(&self) -> bool {
        self.mode == Mode::Finishing && self.jobs.is_empty() && !self.hangs
    }
}

fn runner_is_disabled(runner: Option<&mut Runner>) -> bool {
    runner.is_some_and(|runner| !runner.sections.iter_mut().any(Section::is_healthy))
}

impl Inner {
    /// The next section has its turn. It waits if all workers are busy, and the next ones with it.
    pub(in crate::simulation) fn turn(&mut self, host: &str, pid: u32, number: usize) {
        let Some(runner) = self.runner(host, pid) else { return };
        if runner.mode != Mode::Working {
            return;
        }
        if runner.sections[number].is_healthy() {
            runner.sections[number].feeds += 1;
            if !runner.has_free_worker() {
                runner.waiting = Some(number);
                self.trace.count("section waits for a worker");
                return;
            }
            self.process_section(host, pid, number);
        } else {
            self.trace.count("turn of a disabled section");
            if runner_is_disabled(self.runner(host, pid)) {
                return self.later(host, DISABLED, Happening::Turn { pid, section: number });
            }
        }
        self.next_turn(host, pid, number);
    }

    fn next_turn(&mut self, host: &str, pid: u32, number: usize) {
        let Some(runner) = self.runner(host, pid) else { return };
        let sections = runner.sections.len();
        let interval = runner.setup.check_interval / u32::try_from(sections).unwrap_or(1);
        self.later(host, interval, Happening::Turn { pid, section: (number + 1) % sections });
    }

    /// A worker begins a request of this section, within `request_concurrency`.
    pub(in crate::simulation) fn process_section(&mut self, host: &str, pid: u32, section: usize) {
        let number = self.gitlab.next_request();
        let Some(runner) = self.runner(host, pid) else { return };
        let limit = runner.setup.request_concurrency;
        let is_free = runner.mode == Mode::Working && runner.has_free_worker();
        let state = &mut runner.sections[section];
        if !is_free || state.requests.len() + state.reporting >= limit {
            return;
        }
        state.requests.push(Request { number, opened: Instant::now() });
        let last_update = state.last_update;
        self.send_request(number, Sender { host: host.to_owned(), pid, section }, last_update);
    }

    /// GitLab's reply to a job request arrives, unless the runner has cancelled it.
    pub(in crate::simulation) fn reply_arrives(&mut self, number: u64) {
        let Some((Sender { host, pid, section }, reply)) = self.gitlab.replied(number) else { return };
        let (host, report) = (host.as_str(), self.gitlab.settings.report);
        let Some(runner) = self.runner(host, pid) else { return };
        let is_routed = runner.setup.kind == Kind::Routed;
        let state = &mut runner.sections[section];
        let before = state.requests.len();
        state.requests.retain(|open| open.number != number);
        if state.requests.len() == before {
            return;
        }
        if !matches!(reply, Reply::Job(_)) {
            state.closed = Instant::now();
        }
        let is_first = runner.accepted_requests() == 0;
        runner.sections[section].count(&reply, is_routed);
        runner.routed += u64::from(is_routed);
        let has_begun = is_first && runner.accepted_requests() > 0;
        let state = &mut runner.sections[section];
        match reply {
            Reply::Job(job) => {
                state.reporting += 1;
                runner.jobs.insert(job);
                runner.section_of.insert(job, section);
                runner.since.insert(job, Instant::now());
                self.later(host, report, Happening::Reported { pid, section });
                self.job_received(host, pid, job);
            }
            Reply::NoJob(last_update) => state.last_update = last_update.or(state.last_update),
            Reply::Forbidden | Reply::Failed | Reply::Nothing => {}
        }
        if has_begun {
            self.trace_host(host, "runner takes jobs");
        }
        self.worker_is_free(host, pid);
    }

    fn job_received(&mut self, host: &str, pid: u32, job: u64) {
        let random = match self.random.percent(10) {
            true => self.random.millis(10_000, 300_000),
            false => self.random.millis(100, 20_000),
        };
        let lasts = self.gitlab.settings.job_lasts.unwrap_or(random);
        // It begins after its first report.
        let lasts = lasts + self.gitlab.settings.report;
        // The runner sends the first lines 3 s after it has received the job (its `DefaultUpdateInterval`), or at the end of the job.
        let log = Duration::from_secs(3) + self.gitlab.settings.latency;
        self.gitlab.log_begins(job, Instant::now() + log.min(lasts));
        self.later(host, lasts, Happening::JobEnds { pid, job });
    }

    /// The first report of a job has arrived. Another worker requests the next job at once; the gauge can be read in between.
    pub(in crate::simulation) fn job_reported(&mut self, host: &str, pid: u32, section: usize) {
        let Some(runner) = self.runner(host, pid) else { return };
        runner.sections[section].reporting -= 1;
        runner.sections[section].begun += 1;
        runner.sections[section].closed = Instant::now();
        self.later(host, STEP, Happening::Worker { pid, section });
    }

    /// The section that waits for a worker has one now.
    fn worker_is_free(&mut self, host: &str, pid: u32) {
        let Some(runner) = self.runner(host, pid) else { return };
        if runner.mode == Mode::Working
            && runner.has_free_worker()
            && let Some(section) = runner.waiting.take()
        {
            self.later(host, STEP, Happening::Worker { pid, section });
            self.next_turn(host, pid, section);
        }
    }

    /// A job has ended, or it is time to report its end, or to drop its result after the last attempt.
    pub(in crate::simulation) fn job_ends(&mut self, host: &str, pid: u32, job: u64) {
        let takes_reports = self.gitlab.takes_reports();
        let first = self.random.millis(5, 300);
        let Some(runner) = self.runner(host, pid).filter(|runner| runner.jobs.contains(&job)) else { return };
        let attempts = runner.setup.report_attempts;
        let Some(failed) = runner.reports.get(&job).copied() else {
            runner.reports.insert(job, 0);
            return self.later(host, first, Happening::JobEnds { pid, job });
        };
        if failed == attempts {
            self.result_dropped(host, pid, job);
        } else if takes_reports {
            runner.reported_late |= failed > 0 && failed + 1 == attempts;
            self.job_done(job);
        } else {
            runner.reports.insert(job, failed + 1);
            let again = if failed + 1 < attempts { Duration::from_secs(1 << failed) } else { Duration::ZERO };
            self.trace.count("end of a job is not reported");
            return self.later(host, AFTER_FAILURE + again, Happening::JobEnds { pid, job });
        }
        let Some(runner) = self.runner(host, pid) else { return };
        runner.forget(job);
        if let Some(section) = runner.section_of.remove(&job) {
            runner.sections[section].jobs_ended += 1;
        }
        if runner.is_finished() {
            self.runner_exits(host, pid, Exit::Code(0));
        } else {
            self.worker_is_free(host, pid);
        }
    }

    /// GitLab never receives the result of a job.
    fn result_dropped(&mut self, host: &str, pid: u32, job: u64) {
        self.trace.count("result of a job dropped");
        self.log(host, format!("runner {pid} drops the result of job {job}"));
        self.gitlab.result_dropped(job);
        if let Some(runner) = self.runner(host, pid) {
            runner.dropped = Some(Instant::now());
        }
    }
}
