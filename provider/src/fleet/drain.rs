//! Shutting a runner down and waiting until its process has ended.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Fault, Progress, Retry, Wrapper, jobs_left, poll_interval};
use crate::{
    args::duration::human,
    client::{DrainRequest, Look, RunnerStatus},
};

/// How long a runner may take to end after a forceful shutdown that followed a timeout: GitLab Runner's own `shutdown_timeout`
/// is 30 s, the wrapper's kill comes after that.
const FORCE_LIMIT: Duration = Duration::from_secs(120);

/// A request is repeated at most this often while the wrapper does not act on it.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How the runner is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It takes no further job and ends after its last one.
    Graceful,
    /// It aborts its jobs.
    Forceful,
}

/// What happens when the runner has not ended at the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// The drain fails; the runner goes on draining.
    Fail,
    /// A forceful shutdown: jobs that still run are aborted.
    Force,
}

/// What it means that the wrapper cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnreachable {
    /// The drain fails: nobody knows whether jobs run there.
    Fail,
    /// The host is taken for gone. The user's explicit consent to lose what may still run.
    AssumeTerminated,
}

/// One drain, as the resource asks for it.
#[derive(Debug, Clone)]
pub struct DrainPolicy {
    pub mode: Mode,
    /// Overall limit.
    pub timeout: Duration,
    pub on_timeout: OnTimeout,
    pub on_unreachable: OnUnreachable,
    /// Who asks and why; `forceful` in it is decided here.
    pub request: DrainRequest,
    /// Applies until the shutdown was accepted. From then on a lost connection is tried again until the deadline, unless
    /// `on_unreachable` says what a lost host means.
    pub retry: Retry,
}

/// How a drain ended well.
#[derive(Debug)]
pub enum Drained<E> {
    /// The runner had ended before this call.
    AlreadyStopped { reason: String },
    /// It ended under our eyes; `forced` when the deadline turned the drain into a forceful shutdown.
    Terminated { waited: Duration, forced: bool, reason: String },
    /// Nobody answered, and the user said what that means.
    AssumedTerminated { attempts: u32, error: E },
}

/// Why the runner is not known to have ended. What was `requested` stays requested on the host.
#[derive(Debug)]
pub enum NotDrained<E> {
    Connect { attempts: u32, waited: Duration, requested: bool, error: E },
    TimedOut { waited: Duration, requested: bool, forced: bool, last: Option<Look> },
    Interrupted { waited: Duration, requested: bool, last: Option<Look> },
}

/// Asks for the shutdown unless it is under way, and waits until the wrapper reports `stopped`.
///
/// Safe to repeat: a runner that has ended is a success, one that drains is waited for. Only `stopped` ends the wait; a runner
/// without jobs, or one that nobody can see, is not a runner that ended. Dropping the future leaves the shutdown running.
pub async fn run<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &DrainPolicy,
    stop: &CancellationToken,
) -> Result<Drained<W::Error>, NotDrained<W::Error>> {
    let mut drain = Drain::new(manager, wrapper, policy);
    let mut backoff = policy.retry.backoff();
    let mut progress = Progress::new();
    let mut lost = None;
    loop {
        let step = tokio::select! {
            // Stop before deadline before progress: Ctrl-C returns at once.
            biased;
            () = stop.cancelled() => return Err(drain.interrupted()),
            () = sleep_until(drain.deadline) => {
                drain.past_deadline(lost.take())?;
                continue;
            }
            step = drain.step() => step,
        };
        let pause = match step {
            Ok(Some(drained)) => return Ok(drained),
            Ok(None) => {
                (drain.failures, lost) = (0, None);
                backoff.reset();
                poll_interval(drain.start.elapsed(), drain.last.as_ref())
            }
            Err(error) => {
                drain.failures += 1;
                match drain.verdict(&error) {
                    Verdict::TryAgain => {
                        tracing::debug!(manager, failures = drain.failures, "not reached: {error}");
                        lost = Some(error);
                        backoff.delay()
                    }
                    Verdict::AssumeGone => {
                        return Ok(Drained::AssumedTerminated { attempts: drain.failures, error });
                    }
                    Verdict::GiveUp => return Err(drain.unreached(error)),
                }
            }
        };
        if progress.due() {
            drain.log_progress(lost.as_ref());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(drain.interrupted()),
            () = sleep_until(drain.deadline) => drain.past_deadline(lost.take())?,
            () = wrapper.changed(), if lost.is_none() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What to do about a failed call.
enum Verdict {
    TryAgain,
    AssumeGone,
    GiveUp,
}

struct Drain<'a, W> {
    manager: &'a str,
    wrapper: &'a W,
    policy: &'a DrainPolicy,
    start: Instant,
    deadline: Instant,
    /// What is asked for now: the policy's mode, `Forceful` after a deadline that forces.
    want: Mode,
    forced: bool,
    /// When the wrapper last accepted the request for `want`.
    asked: Option<Instant>,
    /// A request was sent; it may have arrived even if its answer did not.
    requested: bool,
    failures: u32,
    last: Option<Look>,
}

impl<'a, W: Wrapper> Drain<'a, W> {
    fn new(manager: &'a str, wrapper: &'a W, policy: &'a DrainPolicy) -> Self {
        let start = Instant::now();
        Self {
            manager,
            wrapper,
            policy,
            start,
            deadline: start + policy.timeout,
            want: policy.mode,
            forced: false,
            asked: None,
            requested: false,
            failures: 0,
            last: None,
        }
    }

    /// Looks, asks when that is due, and tells whether the runner has ended.
    async fn step(&mut self) -> Result<Option<Drained<W::Error>>, W::Error> {
        let mut look = self.wrapper.look().await?;
        self.heard(&look);
        if self.must_ask(look.report.status) {
            // Before the call, which may be dropped in the middle.
            let before = std::mem::replace(&mut self.requested, true);
            let forceful = self.want == Mode::Forceful;
            let request = DrainRequest { forceful, ..self.policy.request.clone() };
            look = match self.wrapper.drain(&request).await {
                Ok(look) => look,
                Err(error) => {
                    // A refusal is an answer: nothing was taken. What got no answer may have arrived.
                    self.requested = before || error.retryable();
                    return Err(error);
                }
            };
            tracing::info!(manager = self.manager, forceful, status = %look.report.status, "shutdown requested");
            self.asked = Some(Instant::now());
            self.heard(&look);
        }
        Ok((look.report.status == RunnerStatus::Stopped).then(|| {
            let reason = look.report.failure_reason;
            if self.requested {
                Drained::Terminated { waited: self.start.elapsed(), forced: self.forced, reason }
            } else {
                Drained::AlreadyStopped { reason }
            }
        }))
    }

    /// A running runner is asked even if it was asked before: either the request was lost (upstream's wrapper forgets one that
    /// comes before its process exists), or the host started the runner anew. One that drains is only ever asked to hurry.
    fn must_ask(&self, status: RunnerStatus) -> bool {
        match status {
            RunnerStatus::Stopped => false,
            RunnerStatus::InShutdown => self.want == Mode::Forceful && self.asked.is_none(),
            RunnerStatus::Running | RunnerStatus::Unknown(_) => {
                self.asked.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN)
            }
        }
    }

    fn verdict(&self, error: &W::Error) -> Verdict {
        if !error.retryable() {
            // A refusal is an answer: somebody is there.
            Verdict::GiveUp
        } else if !self.policy.retry.exhausted(self.failures) {
            Verdict::TryAgain
        } else if self.policy.on_unreachable == OnUnreachable::AssumeTerminated {
            Verdict::AssumeGone
        } else if self.asked.is_some() {
            Verdict::TryAgain
        } else {
            Verdict::GiveUp
        }
    }

    /// Turns to force when the policy says so, once; else the drain has failed.
    fn past_deadline(&mut self, lost: Option<W::Error>) -> Result<(), NotDrained<W::Error>> {
        if self.policy.on_timeout == OnTimeout::Force && !self.forced && self.want == Mode::Graceful {
            tracing::warn!(manager = self.manager, "not drained in time: asking for a forceful shutdown");
            self.forced = true;
            self.want = Mode::Forceful;
            self.asked = None;
            self.deadline = Instant::now() + FORCE_LIMIT;
            return Ok(());
        }
        Err(match lost {
            Some(error) => self.unreached(error),
            None => NotDrained::TimedOut {
                waited: self.start.elapsed(),
                requested: self.requested,
                forced: self.forced,
                last: self.last.take(),
            },
        })
    }

    fn unreached(&self, error: W::Error) -> NotDrained<W::Error> {
        NotDrained::Connect {
            attempts: self.failures,
            waited: self.start.elapsed(),
            requested: self.requested,
            error,
        }
    }

    fn interrupted(&mut self) -> NotDrained<W::Error> {
        NotDrained::Interrupted {
            waited: self.start.elapsed(),
            requested: self.requested,
            last: self.last.take(),
        }
    }

    fn heard(&mut self, look: &Look) {
        if self.last.as_ref().is_none_or(|last| last.report != look.report) {
            let drain = look.detail.as_deref().and_then(|detail| detail.drain.as_ref());
            let drained_by = drain.map(|drain| drain.id.as_str());
            tracing::info!(manager = self.manager, status = %look.report.status, drained_by, "runner status");
        }
        self.last = Some(look.clone());
    }

    fn log_progress(&self, lost: Option<&W::Error>) {
        let waited = human(self.start.elapsed());
        match lost {
            Some(error) => {
                tracing::info!(
                    manager = self.manager,
                    waited,
                    "waiting for the runner to end; not reachable now: {error}"
                );
            }
            None => {
                let left = self.last.as_ref().and_then(jobs_left);
                tracing::info!(
                    manager = self.manager,
                    waited,
                    left,
                    "waiting for the runner to finish its jobs and end"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
