//! Shutting a runner down and waiting until its process has ended.

mod outcome;

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Admission, Fault, Progress, TooFewPeers, Wrapper, jobs_left, poll_interval};
use crate::{
    client::{DrainRequest, Look, RunnerStatus},
    duration::human,
};

pub use outcome::{
    Begun, DrainPolicy, Drained, Ended, Mode, NoCallback, NotDrained, OnTimeout, OnUnreachable, Requested,
};

/// How long a runner may take to end after a forceful shutdown that followed a timeout: GitLab Runner's own `shutdown_timeout`
/// is 30 s, the wrapper's kill comes after that. It is added to `timeouts.delete`.
pub const FORCE_LIMIT: Duration = Duration::from_secs(120);

/// A request is repeated at most this often while the wrapper does not act on it.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How long a call may go on past the deadline to say why it failed. Calls end at the deadline by themselves.
const LAST_WORD: Duration = Duration::from_millis(500);

/// Asks for the shutdown unless it is under way, and waits until the wrapper reports `stopped`.
///
/// Safe to repeat: a runner that has ended is a success, one that drains is joined. Only `stopped` ends the wait: neither a runner
/// without jobs nor a host that cannot be reached is a runner that ended. Dropping the future leaves the shutdown running.
pub async fn run<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &DrainPolicy,
    admission: &impl Admission<W::Error>,
    stop: &CancellationToken,
) -> Result<Drained<W::Error>, NotDrained<W::Error>> {
    let mut drain = Drain::new(manager, wrapper, policy, admission);
    let mut backoff = policy.retry.backoff();
    let mut progress = Progress::new();
    loop {
        let step = tokio::select! {
            // Stop before deadline before progress: Ctrl-C returns at once.
            biased;
            () = stop.cancelled() => return Err(drain.interrupted()),
            () = sleep_until(drain.deadline + LAST_WORD) => {
                if let Some(gone) = drain.past_deadline()? {
                    return Ok(gone);
                }
                continue;
            }
            step = drain.step() => step,
        };
        let pause = match step {
            Ok(Some(ended)) => return Ok(Drained::Ended(Box::new(ended))),
            Ok(None) => {
                drain.reached();
                backoff.reset();
                poll_interval(policy.start.elapsed(), drain.last.as_ref())
            }
            Err(Trouble::Refused(peers)) => return Err(NotDrained::Guarded(peers)),
            // The deadline cut a call short, and the one before was answered: not the connection has failed.
            Err(Trouble::Call(_))
                if drain.lost.is_none() && drain.last.is_some() && Instant::now() >= drain.deadline =>
            {
                poll_interval(policy.start.elapsed(), drain.last.as_ref())
            }
            Err(Trouble::Call(error)) => match drain.verdict(&error) {
                Verdict::TryAgain => {
                    tracing::debug!(manager, failures = drain.failures, "wrapper unreachable: {error}");
                    drain.lost = Some(error);
                    backoff.delay()
                }
                Verdict::AssumeGone => return Ok(drain.assumed(error)),
                Verdict::GiveUp => return Err(drain.unreached(error)),
            },
        };
        if progress.due() {
            drain.log_progress();
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(drain.interrupted()),
            () = sleep_until(drain.deadline) => {
                if let Some(gone) = drain.past_deadline()? {
                    return Ok(gone);
                }
            }
            () = wrapper.changed(), if drain.lost.is_none() => {}
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

/// Why a step did not succeed.
enum Trouble<E> {
    Call(E),
    Refused(TooFewPeers<E>),
}

impl<E> From<E> for Trouble<E> {
    fn from(error: E) -> Self {
        Self::Call(error)
    }
}

struct Drain<'a, W: Wrapper, A> {
    manager: &'a str,
    wrapper: &'a W,
    policy: &'a DrainPolicy,
    admission: &'a A,
    deadline: Instant,
    /// What is asked for now: the policy's mode, `Forceful` after a deadline that forces.
    want: Mode,
    forced: bool,
    /// When the wrapper last accepted the request for `want`.
    asked: Option<Instant>,
    requested: Requested,
    begun: Begun,
    no_callback: Option<NoCallback<W::Error>>,
    /// Failed calls in a row, and how many of the last ones found the host absent.
    failures: u32,
    absences: u32,
    /// The last failure, while the wrapper is not reached.
    lost: Option<W::Error>,
    last: Option<Look>,
}

impl<'a, W: Wrapper, A: Admission<W::Error>> Drain<'a, W, A> {
    fn new(manager: &'a str, wrapper: &'a W, policy: &'a DrainPolicy, admission: &'a A) -> Self {
        Self {
            manager,
            wrapper,
            policy,
            admission,
            deadline: policy.start + policy.timeout,
            want: policy.mode,
            forced: false,
            asked: None,
            requested: Requested::No,
            begun: Begun::Before,
            no_callback: None,
            failures: 0,
            absences: 0,
            lost: None,
            last: None,
        }
    }

    /// Looks, asks when that is due, and tells whether the runner has ended.
    async fn step(&mut self) -> Result<Option<Ended<W::Error>>, Trouble<W::Error>> {
        let mut look = self.wrapper.look(self.deadline).await?;
        self.heard(&look);
        match look.report.status {
            RunnerStatus::Stopped => self.leave_callback(&look).await?,
            RunnerStatus::InShutdown => {
                if self.requested == Requested::No {
                    self.begun = Begun::Joined;
                }
                self.requested = Requested::Accepted;
                if self.must_join(&look) {
                    look = self.ask().await?;
                }
            }
            RunnerStatus::Running | RunnerStatus::Unknown(_) => {
                // Asked again also after it was accepted: either the request was lost (upstream's wrapper forgets one that comes before
                // its process exists), or the host started the runner anew.
                if self.asked.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN) {
                    let permit = match self.requested {
                        Requested::Accepted => None,
                        Requested::No | Requested::Perhaps => {
                            Some(self.admission.enter(self.deadline).await.map_err(Trouble::Refused)?)
                        }
                    };
                    self.begun = Begun::Here;
                    look = self.ask().await?;
                    drop(permit);
                }
            }
        }
        let ended = look.report.status == RunnerStatus::Stopped;
        Ok(ended.then(|| Ended {
            begun: self.begun,
            waited: self.policy.start.elapsed(),
            forced: self.forced,
            look,
            no_callback: self.no_callback.take(),
        }))
    }

    /// Requests the shutdown that is wanted now.
    async fn ask(&mut self) -> Result<Look, W::Error> {
        // Before the call, which may be dropped in the middle.
        let before = self.requested;
        self.requested = before.max(Requested::Perhaps);
        let forceful = self.want == Mode::Forceful;
        let request = DrainRequest { forceful, ..self.policy.request.clone() };
        match self.wrapper.drain(&request, self.deadline).await {
            Ok(look) => {
                let joined = self.begun == Begun::Joined;
                tracing::info!(manager = self.manager, forceful, joined, status = %look.report.status, "shutdown requested");
                self.asked = Some(Instant::now());
                self.requested = Requested::Accepted;
                self.heard(&look);
                Ok(look)
            }
            Err(error) => {
                if !error.may_have_arrived() {
                    self.requested = before;
                }
                Err(error)
            }
        }
    }

    /// A drain under way is joined when it is not ours: the wrapper then adds our callback, and refuses a job that would wait for its
    /// own runner. A forceful drain hurries it. Upstream's wrapper is asked to hurry only: it can add nothing, and each of its requests is
    /// a further signal.
    fn must_join(&mut self, look: &Look) -> bool {
        if self.asked.is_some() {
            return false;
        }
        let Some(detail) = look.detail.as_deref() else {
            if self.begun == Begun::Joined && self.policy.request.callback.is_some() {
                self.no_callback = Some(NoCallback::Upstream);
            }
            return self.want == Mode::Forceful;
        };
        self.want == Mode::Forceful || detail.drain.as_ref().is_none_or(|it| it.id != self.policy.request.id)
    }

    /// A runner that had ended before: its wrapper makes the callback at once. A refused callback does not keep the runner running.
    async fn leave_callback(&mut self, look: &Look) -> Result<(), W::Error> {
        if self.requested != Requested::No
            || self.no_callback.is_some()
            || self.policy.request.callback.is_none()
        {
            return Ok(());
        }
        let Some(detail) = look.detail.as_deref() else {
            self.no_callback = Some(NoCallback::Upstream);
            return Ok(());
        };
        if detail.drain.as_ref().is_some_and(|drain| drain.id == self.policy.request.id) {
            return Ok(());
        }
        match self.wrapper.drain(&self.policy.request, self.deadline).await {
            Ok(_) => {
                tracing::info!(
                    manager = self.manager,
                    "runner was already stopped; callback sent to its wrapper"
                );
                Ok(())
            }
            Err(error) if error.retryable() => Err(error),
            Err(error) => {
                self.no_callback = Some(NoCallback::Refused(error));
                Ok(())
            }
        }
    }

    fn reached(&mut self) {
        (self.failures, self.absences, self.lost) = (0, 0, None);
    }

    /// Only a host that was absent all the time may be taken for gone, and only before the shutdown was requested.
    fn may_assume(&self) -> bool {
        self.policy.on_unreachable == OnUnreachable::AssumeTerminated
            && self.requested == Requested::No
            && self.absences > 0
    }

    fn verdict(&mut self, error: &W::Error) -> Verdict {
        self.failures += u32::from(error.was_tried());
        self.absences = if error.absent() { self.absences + 1 } else { 0 };
        let retry = &self.policy.retry;
        if !error.retryable() {
            // A refusal is an answer.
            Verdict::GiveUp
        } else if self.requested != Requested::No {
            Verdict::TryAgain
        } else if self.may_assume() {
            if retry.exhausted(self.absences) { Verdict::AssumeGone } else { Verdict::TryAgain }
        } else if retry.exhausted(self.failures) {
            Verdict::GiveUp
        } else {
            Verdict::TryAgain
        }
    }

    /// Takes an absent host for gone where that is wanted, turns to force when the policy says so, once; else the drain has failed.
    fn past_deadline(&mut self) -> Result<Option<Drained<W::Error>>, NotDrained<W::Error>> {
        if self.may_assume()
            && self.absences >= self.failures
            && let Some(error) = self.lost.take()
        {
            return Ok(Some(self.assumed(error)));
        }
        if self.policy.on_timeout == OnTimeout::Force && !self.forced && self.want == Mode::Graceful {
            tracing::warn!(manager = self.manager, "not drained in time; requesting a forceful shutdown");
            self.forced = true;
            self.want = Mode::Forceful;
            self.asked = None;
            self.deadline = Instant::now() + FORCE_LIMIT;
            return Ok(None);
        }
        Err(match self.lost.take() {
            Some(error) => self.unreached(error),
            None => NotDrained::TimedOut {
                waited: self.policy.start.elapsed(),
                requested: self.requested,
                mode: self.policy.mode,
                forced: self.forced,
                last: self.last.take(),
            },
        })
    }

    fn assumed(&self, error: W::Error) -> Drained<W::Error> {
        let waited = self.policy.start.elapsed();
        Drained::AssumedTerminated { attempts: self.absences, waited, error }
    }

    fn unreached(&self, error: W::Error) -> NotDrained<W::Error> {
        NotDrained::Connect {
            attempts: self.failures,
            waited: self.policy.start.elapsed(),
            requested: self.requested,
            error,
        }
    }

    fn interrupted(&mut self) -> NotDrained<W::Error> {
        NotDrained::Interrupted {
            waited: self.policy.start.elapsed(),
            requested: self.requested,
            last: self.last.take(),
        }
    }

    fn heard(&mut self, look: &Look) {
        if self.last.as_ref().is_none_or(|last| last.report != look.report) {
            let drain = look.detail.as_deref().and_then(|detail| detail.drain.as_ref());
            let drained_by = drain.map(|drain| drain.id.as_str());
            tracing::info!(manager = self.manager, status = %look.report.status, drained_by, "runner status changed");
        }
        self.last = Some(look.clone());
    }

    fn log_progress(&self) {
        let waited = human(self.policy.start.elapsed());
        match &self.lost {
            Some(error) => {
                tracing::info!(
                    manager = self.manager,
                    waited,
                    "waiting for the runner to exit; wrapper unreachable: {error}"
                );
            }
            None => {
                let left = self.last.as_ref().and_then(jobs_left);
                tracing::info!(
                    manager = self.manager,
                    waited,
                    left,
                    "waiting for the runner to finish its jobs and exit"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
