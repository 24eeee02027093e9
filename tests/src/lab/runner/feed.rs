//! Feeds the sections of the configuration to workers, which request jobs: the tasks of `feedRunners` and `processRunner` of GitLab Runner.

use std::{sync::Arc, time::Instant};

use hyper::StatusCode;

use super::{
    endpoints::short,
    link::Link,
    options::JobRouter,
    say,
    state::{Counts, State},
    work::{Behavior, Worker},
};
use crate::lab::{
    http,
    queue::serve::{Features, Info, JobOffer, JobRequest, LAST_UPDATE, ReportedState},
};

/// The result of a job request.
enum Polled {
    Job(JobOffer),
    NoJob,
    Unhealthy,
}

/// Feeds one section after the other to a free worker until shutdown begins. A whole round takes `check_interval`, or longer if all
/// workers are busy.
pub(super) async fn feed(state: Arc<State>, link: Link, behavior: Behavior) {
    let rounds = async {
        loop {
            let config = state.lock().config.clone();
            let sections = u32::try_from(config.runners.len()).unwrap_or(u32::MAX);
            for section in config.runners {
                let worker = Worker { state: Arc::clone(&state), link: link.clone(), section, behavior };
                if worker.is_healthy() {
                    *state.lock().feeds.entry(worker.section.token.clone()).or_default() += 1;
                    worker.start_when_free().await;
                }
                tokio::time::sleep(config.check_interval / sections).await;
            }
            if sections == 0 {
                tokio::time::sleep(config.check_interval).await;
            }
        }
    };
    tokio::select! {
        () = state.stopping.cancelled() => {}
        () = rounds => {}
    }
}

impl Worker {
    /// Whether the section may send requests: too many failures in a row disable it for a time.
    fn is_healthy(&self) -> bool {
        let mut inner = self.state.lock();
        let health = inner.health.entry(self.health_id()).or_default();
        if health.failures >= self.section.unhealthy_requests_limit {
            if health.checked.elapsed() <= self.section.unhealthy_interval {
                return false;
            }
            health.failures = 0;
            health.checked = Instant::now();
        }
        true
    }

    /// Waits until not all workers are busy, and processes the section in one of them.
    async fn start_when_free(self) {
        loop {
            let changed = self.state.changed.notified();
            if self.clone().start_if_free() {
                return;
            }
            changed.await;
        }
    }

    /// Processes the section in a worker, unless all of them are busy.
    fn start_if_free(self) -> bool {
        let mut inner = self.state.lock();
        let is_free = inner.busy_workers < inner.config.concurrent && !self.state.stopping.is_cancelled();
        if is_free {
            inner.busy_workers += 1;
            drop(inner);
            tokio::spawn(self.process());
        }
        is_free
    }

    /// One request, and its job.
    async fn process(self) {
        if self.acquire() {
            let offer = self.request().await;
            self.counted(|counts| counts.requests -= 1);
            if let Some(offer) = offer {
                // Another worker requests the next job immediately, not at the section's next turn. As upstream, the gauge can be read
                // between the two requests.
                self.clone().start_if_free();
                self.run_job(offer).await;
            }
            self.counted(|counts| counts.jobs -= 1);
        }
        self.state.lock().busy_workers -= 1;
        self.state.changed.notify_waiters();
    }

    /// Begins a request within `limit` and `request_concurrency`.
    fn acquire(&self) -> bool {
        self.counted(|counts| {
            if self.section.limit > 0 && counts.jobs >= self.section.limit {
                return false;
            }
            if counts.requests >= self.section.request_concurrency {
                counts.exceeded += 1;
                return false;
            }
            counts.jobs += 1;
            counts.requests += 1;
            true
        })
    }

    fn counted<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(self.state.lock().counts.entry(self.section.token.clone()).or_default())
    }

    /// Requests a job, and makes its first report. A stop signal cancels the request.
    async fn request(&self) -> Option<JobOffer> {
        let polled = tokio::select! {
            () = self.state.stopping.cancelled() => {
                self.state.count_answer(&self.section.token, "request_job", -1, "post");
                say("WARNING: Checking for jobs... failed             status=couldn't execute POST: context canceled");
                Polled::NoJob
            }
            polled = self.poll() => polled,
        };
        self.mark_health(!matches!(polled, Polled::Unhealthy));
        let Polled::Job(offer) = polled else { return None };
        let reported = self.report(&offer, ReportedState::Running, None).await;
        // As upstream, a failure of GitLab does not prevent the job.
        if matches!(reported, Ok(StatusCode::CONFLICT | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)) {
            say(&format!("job {} was not given to us: {reported:?}", offer.id));
            return None;
        }
        Some(offer)
    }

    async fn poll(&self) -> Polled {
        let token = &self.section.token;
        let request = JobRequest {
            token: token.clone(),
            process: self.link.process().clone(),
            last_update: self.state.lock().last_updates.get(token).copied(),
            info: Info {
                name: "gitlab-runner".to_owned(),
                version: self.behavior.version.to_string(),
                features: Features {
                    two_phase_job_commit: self.behavior.version.has_two_phase_job_commit(),
                    cancel_gracefully: true,
                },
            },
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
            self.state.count_answer(token, "request_job", status, "post");
        }
        let (reply, offer) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                say(&format!("Checking for jobs... failed: {error:#}"));
                return Polled::NoJob;
            }
        };
        // Without the header, the next request has the same value as this one.
        let last_update = reply.headers.get(LAST_UPDATE).and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(last_update) = last_update {
            self.state.lock().last_updates.insert(token.clone(), last_update);
        }
        match (offer, reply.status) {
            (Some(offer), _) => Polled::Job(offer),
            (None, StatusCode::NO_CONTENT) => Polled::NoJob,
            (None, StatusCode::FORBIDDEN) => {
                say("Checking for jobs... forbidden");
                Polled::Unhealthy
            }
            (None, status) => {
                say(&format!("Checking for jobs... failed: {status}"));
                Polled::NoJob
            }
        }
    }

    /// As upstream, the URL and the part of the token that is shown.
    fn health_id(&self) -> String {
        format!("{}{}", self.section.url, short(&self.section.token, self.behavior.version))
    }

    fn mark_health(&self, is_healthy: bool) {
        let token = &self.section.token;
        let mut inner = self.state.lock();
        let health = inner.health.entry(self.health_id()).or_default();
        if is_healthy {
            health.failures = 0;
            health.checked = Instant::now();
            return;
        }
        health.failures += 1;
        let is_disabled = health.failures >= self.section.unhealthy_requests_limit;
        *inner.health_failures.entry(token.clone()).or_default() += 1;
        if is_disabled {
            let (name, interval) = (&self.section.name, self.section.unhealthy_interval);
            say(&format!("Runner {name:?} is unhealthy and will be disabled for {interval:?} seconds!"));
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
}
