//! Runs jobs and reports them.

use std::{sync::Arc, time::Duration, time::Instant};

use hyper::StatusCode;

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
        serve::{JobOffer, JobReport, ReportedState},
    },
};

/// Delay between two requests whether a held job may end.
const RELEASE_RETRY: Duration = Duration::from_millis(200);

/// A worker with the section that it processes.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) state: Arc<State>,
    pub(super) link: Link,
    pub(super) section: Section,
    pub(super) behavior: Behavior,
}

/// How the workers request jobs, run them, and report their end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behavior {
    pub(super) version: Version,
    pub(super) router: JobRouter,
    pub(super) abort: Abort,
    /// Delay between the first two attempts to report the end of a job.
    pub(super) report_retry: Duration,
    /// Delay after each failed attempt.
    pub(super) update_interval: Duration,
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

impl Worker {
    /// Runs a job until its end has been reported.
    pub(super) async fn run_job(&self, offer: JobOffer) {
        {
            let mut inner = self.state.lock();
            *inner.jobs_total.entry(self.section.token.clone()).or_default() += 1;
            inner.jobs.push(RunningJob {
                id: offer.id,
                section: self.section.clone(),
                since: Instant::now(),
                end: None,
            });
        }
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
        if let Some(job) = self.state.lock().jobs.iter_mut().find(|job| job.id == offer.id) {
            job.end = Some(end);
        }
        if let Some((_, reason)) = failure {
            let mut inner = self.state.lock();
            *inner.jobs_failed.entry((self.section.token.clone(), reason)).or_default() += 1;
        }
        self.report_end(&offer, end, failure.map(|(text, _)| text)).await;
        let mut inner = self.state.lock();
        *inner.jobs_ended.entry(self.section.token.clone()).or_default() += 1;
        inner.jobs.retain(|job| job.id != offer.id);
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
        let mut is_log_sent = false;
        for attempt in 1..=attempts {
            is_log_sent = is_log_sent || self.send_log(offer).await;
            if is_log_sent {
                match self.report(offer, end, reason).await {
                    Ok(StatusCode::OK | StatusCode::CONFLICT | StatusCode::NOT_FOUND) => return,
                    Ok(status) => say(&format!("Updating job {}... failed: {status}", offer.id)),
                    Err(error) => say(&format!("Updating job {}... client error: {error:#}", offer.id)),
                }
            }
            tokio::time::sleep(self.behavior.update_interval).await;
            if attempt < attempts {
                tokio::time::sleep(self.behavior.report_delay(attempt)).await;
            }
        }
    }

    /// Sends the last part of the log. As upstream, nothing is counted without a response.
    async fn send_log(&self, offer: &JobOffer) -> bool {
        let url = format!("{}/api/v4/jobs/{}/trace", self.section.url, offer.id);
        match http::send("PATCH", &url, None::<&()>).await {
            Ok(reply) => {
                self.state.count_answer(
                    &self.section.token,
                    "patch_trace",
                    reply.status.as_u16().into(),
                    "patch",
                );
                if reply.status != StatusCode::ACCEPTED {
                    say(&format!(
                        "WARNING: Appending trace to coordinator... failed  code={} job={}",
                        reply.status.as_u16(),
                        offer.id
                    ));
                }
                reply.status == StatusCode::ACCEPTED
            }
            Err(error) => {
                say(&format!("ERROR: Appending trace to coordinator... error {error:#} job={}", offer.id));
                false
            }
        }
    }

    pub(super) async fn report(
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
        let status = http::send("PUT", &url, Some(&report)).await.map(|reply| reply.status);
        let counted = status.as_ref().map_or(-1, |status| status.as_u16().into());
        self.state.count_answer(&self.section.token, "update_job", counted, "put");
        status
    }
}
