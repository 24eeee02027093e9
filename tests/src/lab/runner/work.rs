//! Requests jobs and runs them.

use std::{collections::BTreeMap, sync::Arc, time::Duration, time::Instant};

use hyper::StatusCode;
use tokio_util::sync::CancellationToken;

use super::{
    config::Section,
    job::{Group, JobProcess},
    link::Link,
    options::{JobRouter, Version},
    say,
    state::{FailureReason, RunningJob, State},
};
use crate::lab::{
    http,
    queue::{
        Lasts,
        serve::{JobOffer, JobReport, JobRequest, LAST_UPDATE, ReportedState},
    },
};

/// Delay between two requests whether a held job may end.
const RELEASE_RETRY: Duration = Duration::from_millis(200);

/// Runs one worker per section of the configuration until shutdown begins, following reloads.
pub(super) async fn feed(state: Arc<State>, link: Link, behavior: Behavior) {
    let mut workers: BTreeMap<String, CancellationToken> = BTreeMap::new();
    while !state.stopping.is_cancelled() {
        let changed = state.changed.notified();
        let sections = state.lock().config.runners.clone();
        workers.retain(|token, worker| {
            let keep = sections.iter().any(|section| section.token == *token);
            if !keep {
                worker.cancel();
            }
            keep
        });
        for section in sections {
            workers.entry(section.token.clone()).or_insert_with(|| {
                let enough = state.stopping.child_token();
                let worker = Worker {
                    state: Arc::clone(&state),
                    link: link.clone(),
                    section,
                    enough: enough.clone(),
                    behavior,
                };
                tokio::spawn(worker.run());
                enough
            });
        }
        tokio::select! {
            () = changed => {}
            () = state.stopping.cancelled() => {}
        }
    }
}

/// The worker that polls for one section.
#[derive(Clone)]
struct Worker {
    state: Arc<State>,
    link: Link,
    section: Section,
    enough: CancellationToken,
    behavior: Behavior,
}

/// How the workers request jobs, run them, and report their end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behavior {
    pub(super) version: Version,
    pub(super) router: JobRouter,
    pub(super) abort: Abort,
    /// Delay between the first two attempts to report the end of a job.
    pub(super) report_retry: Duration,
}

impl Behavior {
    /// The number of attempts to report the end of a job of this section.
    fn report_attempts(self, section: &Section) -> u32 {
        if self.version.has_report_limit() {
            section.report_attempts
        } else {
            Section::default().report_attempts
        }
    }

    /// The delay after this attempt, which is counted from 1.
    fn report_delay(self, attempt: u32) -> Duration {
        let longest = if self.version.has_report_limit() { 3600 } else { 5 };
        self.report_retry * 2_u32.saturating_pow(attempt - 1).min(longest)
    }
}

/// The kind of the jobs, and their end on abort.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abort {
    /// How long aborting a job takes.
    pub(super) takes: Duration,
    /// The process of each job, if it has one.
    pub(super) process: Option<JobProcess>,
}

/// The result of a poll.
enum Polled {
    Job(JobOffer),
    NoJob,
    Unhealthy,
}

impl Worker {
    async fn run(self) {
        let mut last_update = None;
        let mut failures = 0;
        let mut config_loads = 0;
        loop {
            tokio::select! {
                () = self.enough.cancelled() => return,
                () = self.slot() => {}
            }
            *self.state.lock().feeds.entry(self.section.token.clone()).or_default() += 1;
            let polled = tokio::select! {
                () = self.enough.cancelled() => None,
                polled = self.poll(&mut last_update) => Some(polled),
            };
            let loads_now = self.state.lock().config_loads;
            if loads_now != config_loads {
                config_loads = loads_now;
                failures = 0;
            }
            let rest = match polled {
                Some(Polled::Job(offer)) => {
                    failures = 0;
                    if self.take_up(offer).await {
                        continue; // the slot goes with the job; ask for the next at once
                    }
                    Duration::ZERO
                }
                Some(Polled::NoJob) => {
                    failures = 0;
                    self.state.lock().config.check_interval
                }
                Some(Polled::Unhealthy) => {
                    failures += 1;
                    *self.state.lock().health_failures.entry(self.section.token.clone()).or_default() += 1;
                    self.state.lock().config.check_interval
                }
                None => Duration::ZERO,
            };
            self.free_slot();
            let rest = if failures >= self.section.unhealthy_requests_limit {
                failures = 0;
                let interval = self.section.unhealthy_interval;
                say(&format!(
                    "Runner {:?} is unhealthy and will be disabled for {interval:?} seconds!",
                    self.section.name
                ));
                interval
            } else {
                rest
            };
            tokio::select! {
                () = self.enough.cancelled() => return,
                () = tokio::time::sleep(rest) => {}
                () = self.reloaded(config_loads) => {}
            }
        }
    }

    /// Waits for a reload of the configuration, which enables all sections: GitLab Runner then forgets all failures.
    async fn reloaded(&self, config_loads: usize) {
        loop {
            let changed = self.state.changed.notified();
            if self.state.lock().config_loads != config_loads {
                return;
            }
            changed.await;
        }
    }

    /// Waits for a free slot within `concurrent` and the section's `limit`, and occupies it.
    async fn slot(&self) {
        loop {
            let changed = self.state.changed.notified();
            {
                let mut inner = self.state.lock();
                let own = inner.jobs.iter().filter(|job| job.section.token == self.section.token).count();
                let limited = self.section.limit > 0 && own >= self.section.limit;
                if inner.slots < inner.config.concurrent && !limited {
                    inner.slots += 1;
                    return;
                }
            }
            changed.await;
        }
    }

    fn free_slot(&self) {
        self.state.lock().slots -= 1;
        self.state.changed.notify_waiters();
    }

    async fn poll(&self, last_update: &mut Option<u64>) -> Polled {
        let request = JobRequest {
            token: self.section.token.clone(),
            process: self.link.process().clone(),
            last_update: *last_update,
            two_phase_job_commit: self.behavior.version.has_two_phase_job_commit(),
        };
        let is_routed = self.is_routed();
        let path = if is_routed { "lab/router/get_job" } else { "api/v4/jobs/request" };
        let url = format!("{}/{path}", self.section.url);
        let reply = http::send("POST", &url, Some(&request)).await;
        if is_routed {
            self.state.lock().routed += 1;
        }
        let answered = reply.and_then(|reply| {
            let offer = (reply.status == StatusCode::CREATED).then(|| reply.json()).transpose()?;
            Ok((reply, offer))
        });
        // As upstream, the status of a request without a valid response is -1, and the section stays healthy.
        let status = answered.as_ref().map_or(-1, |(reply, _)| reply.status.as_u16().into());
        if !is_routed {
            self.state.count_answer(&self.section.token, "request_job", status, "post");
        }
        let (reply, offer) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                say(&format!("Checking for jobs... failed: {error:#}"));
                return Polled::NoJob;
            }
        };
        if let Some(offer) = offer {
            return Polled::Job(offer);
        }
        match reply.status {
            StatusCode::NO_CONTENT => {
                *last_update = reply
                    .headers
                    .get(LAST_UPDATE)
                    .and_then(|value| value.to_str().ok())
                    .and_then(|value| value.parse().ok());
                Polled::NoJob
            }
            StatusCode::FORBIDDEN => {
                say("Checking for jobs... forbidden");
                Polled::Unhealthy
            }
            status => {
                say(&format!("Checking for jobs... failed: {status}"));
                Polled::NoJob
            }
        }
    }

    /// Whether the next request goes through the job router. As upstream, a router that cannot be reached opens the circuit breaker.
    fn is_routed(&self) -> bool {
        if !self.section.uses_job_router {
            return false;
        }
        let mut inner = self.state.lock();
        if self.behavior.router == JobRouter::Down {
            inner.breaker_open = true;
            inner.fallbacks += 1;
        }
        self.behavior.router == JobRouter::Up
    }

    /// Accepts an offer and runs the job in a new task; `false` if the offer is no longer valid.
    async fn take_up(&self, offer: JobOffer) -> bool {
        if self.behavior.version.has_two_phase_job_commit() {
            let accepted = self.report(&offer, ReportedState::Running, None).await;
            if !matches!(accepted, Ok(StatusCode::OK)) {
                say(&format!("job {} was not given to us: {accepted:?}", offer.id));
                return false;
            }
        }
        {
            let mut inner = self.state.lock();
            *inner.jobs_total.entry(self.section.token.clone()).or_default() += 1;
            inner.jobs.push(RunningJob {
                id: offer.id,
                section: self.section.clone(),
                since: Instant::now(),
            });
        }
        let job = self.clone();
        tokio::spawn(async move { job.run_job(offer).await });
        true
    }

    async fn run_job(self, offer: JobOffer) {
        // GitLab Runner buffers the log of each job in a temporary file (`helpers/trace/buffer.go`), and fails the job without it. This one has
        // no name, so that a killed runner leaves no file behind.
        let log = tempfile::tempfile();
        let mut group = self.behavior.abort.process.and_then(|process| match Group::start(process) {
            Ok(group) => Some(group),
            Err(error) => {
                say(&format!("job {}: no process: {error}", offer.id));
                None
            }
        });
        let (end, failure) = tokio::select! {
            biased;
            () = std::future::ready(()), if log.is_err() => {
                say(&format!("job {}: failed to create trace file: {:?}", offer.id, log.as_ref().err()));
                (ReportedState::Failed, Some(("failed to create trace file", FailureReason::SystemFailure)))
            }
            () = self.work(&offer) => {
                if let Some(group) = &mut group {
                    group.kill().await;
                }
                (ReportedState::Success, None)
            }
            () = self.state.aborting.cancelled() => {
                tokio::time::sleep(self.behavior.abort.takes).await;
                if let Some(group) = &mut group {
                    group.terminate().await;
                }
                let reason = FailureReason::of_abort(self.behavior.version);
                (ReportedState::Failed, Some(("aborted: forceful shutdown of the runner", reason)))
            }
        };
        if let Some((_, reason)) = failure {
            let mut inner = self.state.lock();
            *inner.jobs_failed.entry((self.section.token.clone(), reason)).or_default() += 1;
        }
        self.report_end(&offer, end, failure.map(|(text, _)| text)).await;
        {
            let mut inner = self.state.lock();
            let token = &self.section.token;
            *inner.jobs_ended.entry(token.clone()).or_default() += 1;
            inner.jobs.retain(|job| job.id != offer.id);
        }
        self.free_slot();
    }

    async fn work(&self, offer: &JobOffer) {
        match offer.lasts {
            Lasts::For(duration) => tokio::time::sleep(duration).await,
            Lasts::UntilReleased => {
                let released = format!("{}/lab/jobs/{}/released", self.section.url, offer.id);
                while !matches!(http::get(&released).await, Ok(reply) if reply.status == StatusCode::OK) {
                    tokio::time::sleep(RELEASE_RETRY).await;
                }
            }
        }
    }

    /// Reports the end of a job until it is acknowledged, or until the last attempt has failed.
    async fn report_end(&self, offer: &JobOffer, end: ReportedState, reason: Option<&str>) {
        let attempts = self.behavior.report_attempts(&self.section);
        for attempt in 1..=attempts {
            match self.report(offer, end, reason).await {
                Ok(StatusCode::OK | StatusCode::CONFLICT | StatusCode::NOT_FOUND) => return,
                Ok(status) => say(&format!("Updating job {}... failed: {status}", offer.id)),
                Err(error) => say(&format!("Updating job {}... client error: {error:#}", offer.id)),
            }
            if attempt < attempts {
                tokio::time::sleep(self.behavior.report_delay(attempt)).await;
            }
        }
        let end = if end == ReportedState::Success { "Success" } else { "Fail" };
        say(&format!(
            "ERROR: Job trace termination \"{end}\" failed    error=received invalid job update response job={}",
            offer.id
        ));
    }

    async fn report(
        &self,
        offer: &JobOffer,
        state: ReportedState,
        reason: Option<&str>,
    ) -> anyhow::Result<StatusCode> {
        let report = JobReport {
            process: self.link.process().clone(),
            state,
            failure_reason: reason.map(str::to_owned),
        };
        let url = format!("{}/api/v4/jobs/{}", self.section.url, offer.id);
        let reply = http::send("PUT", &url, Some(&report)).await?;
        self.state.count_answer(&self.section.token, "update_job", reply.status.as_u16().into(), "put");
        Ok(reply.status)
    }
}
