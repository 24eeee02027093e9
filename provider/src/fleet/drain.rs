//! Shutting a runner down and waiting until its process has ended.

mod outcome;
mod policy;

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    peers::PeerCheck,
    wait::{self, ConnectionState, Operation},
};
use crate::{
    client::{ClientError, DrainRequest, RunnerStatus, Snapshot, Wrapper},
    duration::human,
};

pub use outcome::{Drained, Ended, NoCallback, NotDrained, Requested, StartedBy};
pub use policy::{DrainPolicy, Mode, OnTimeout, OnUnreachable};

/// How long a runner may take to end after a forceful shutdown that followed a timeout: GitLab Runner's own `shutdown_timeout`
/// is 30 s, the wrapper's kill comes after that. It is added to `timeouts.delete`.
pub const FORCE_LIMIT: Duration = Duration::from_secs(120);

/// A request is repeated at most this often while the wrapper does not act on it.
const REQUEST_AGAIN: Duration = Duration::from_secs(5);

/// How a drain ends.
pub type Outcome = Result<Drained, NotDrained>;

/// Requests the shutdown unless it is under way, and waits until the wrapper reports `stopped`.
///
/// Safe to repeat: a runner that has ended is a success, one that drains is joined. Only `stopped` ends the wait: neither a runner
/// without jobs nor a host that cannot be reached is a runner that ended. Dropping the future leaves the shutdown running.
pub async fn run<W: Wrapper>(
    manager: &str,
    wrapper: &W,
    policy: &DrainPolicy,
    peer_check: &impl PeerCheck,
    stop: &CancellationToken,
) -> Outcome {
    let drain = Drain {
        manager,
        wrapper,
        policy,
        peer_check,
        deadline: policy.start + policy.timeout,
        want: policy.mode,
        forced: false,
        asked: None,
        requested: Requested::No,
        started_by: StartedBy::Before,
        no_callback: None,
    };
    wait::run(drain, wrapper, &policy.retry, stop).await
}

struct Drain<'a, W, A> {
    manager: &'a str,
    wrapper: &'a W,
    policy: &'a DrainPolicy,
    peer_check: &'a A,
    deadline: Instant,
    /// The mode to request now: the policy's, `Forceful` after a deadline that forces.
    want: Mode,
    forced: bool,
    /// When the wrapper last accepted the request for `want`.
    asked: Option<Instant>,
    requested: Requested,
    started_by: StartedBy,
    no_callback: Option<NoCallback>,
}

impl<W: Wrapper, A: PeerCheck> Operation for Drain<'_, W, A> {
    type Outcome = Outcome;

    fn manager(&self) -> &str {
        self.manager
    }

    fn start(&self) -> Instant {
        self.policy.start
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    async fn step(&mut self, connection: &mut ConnectionState) -> Result<Option<Outcome>, ClientError> {
        let mut snapshot = self.wrapper.until(self.deadline).read_status().await?;
        self.received(&snapshot, connection);
        match snapshot.report.status {
            RunnerStatus::Stopped => self.add_callback(&snapshot).await?,
            RunnerStatus::InShutdown => {
                if self.requested == Requested::No {
                    self.started_by = StartedBy::Joined;
                }
                self.requested = Requested::Accepted;
                if self.must_join(&snapshot) {
                    snapshot = self.request(connection).await?;
                }
            }
            RunnerStatus::Running | RunnerStatus::Unknown(_) => {
                // Repeated also after it was accepted: either the request was lost (upstream's wrapper forgets one that comes before its
                // process exists), or the host started the runner anew.
                if self.asked.is_none_or(|asked| asked.elapsed() >= REQUEST_AGAIN) {
                    let permit = match self.requested {
                        Requested::Accepted => None,
                        Requested::No | Requested::Perhaps => {
                            match self.peer_check.enter(self.deadline).await {
                                Ok(permit) => Some(permit),
                                Err(peers) => return Ok(Some(Err(NotDrained::TooFewPeers(peers)))),
                            }
                        }
                    };
                    self.started_by = StartedBy::Here;
                    snapshot = self.request(connection).await?;
                    drop(permit);
                }
            }
        }
        if snapshot.report.status != RunnerStatus::Stopped {
            return Ok(None);
        }
        let ended = Ended {
            started_by: self.started_by,
            waited: self.policy.start.elapsed(),
            forced: self.forced,
            snapshot,
            no_callback: self.no_callback.take(),
        };
        Ok(Some(Ok(Drained::Ended(Box::new(ended)))))
    }

    fn failed(&mut self, connection: &ConnectionState, error: ClientError) -> Result<ClientError, Outcome> {
        let retry = &self.policy.retry;
        if !error.retryable() {
            // A refusal is an answer.
            return Err(Err(self.unreached(connection, error)));
        }
        if self.requested != Requested::No {
            return Ok(error);
        }
        if self.may_assume(connection) {
            if retry.exhausted(connection.absences) {
                Err(Ok(self.assumed(connection, error)))
            } else {
                Ok(error)
            }
        } else if retry.exhausted(connection.failures) {
            Err(Err(self.unreached(connection, error)))
        } else {
            Ok(error)
        }
    }

    /// Takes an absent host for terminated where that is wanted, turns forceful when the policy says so, once; else the drain has failed.
    fn expired(&mut self, connection: &mut ConnectionState) -> Option<Outcome> {
        if self.may_assume(connection)
            && connection.absences >= connection.failures
            && let Some(error) = connection.lost.take()
        {
            return Some(Ok(self.assumed(connection, error)));
        }
        if self.policy.on_timeout == OnTimeout::Force && !self.forced && self.want == Mode::Graceful {
            tracing::warn!(manager = self.manager, "not drained in time; requesting a forceful shutdown");
            self.forced = true;
            self.want = Mode::Forceful;
            self.asked = None;
            self.deadline = Instant::now() + FORCE_LIMIT;
            return None;
        }
        Some(Err(match connection.lost.take() {
            Some(error) => self.unreached(connection, error),
            None => NotDrained::TimedOut {
                waited: self.policy.start.elapsed(),
                requested: self.requested,
                mode: self.policy.mode,
                forced: self.forced,
                last: connection.last.take(),
            },
        }))
    }

    fn interrupted(&mut self, connection: &mut ConnectionState) -> Outcome {
        Err(NotDrained::Interrupted {
            waited: self.policy.start.elapsed(),
            requested: self.requested,
            last: connection.last.take(),
        })
    }

    fn log_progress(&self, connection: &ConnectionState) {
        let waited = human(self.policy.start.elapsed());
        match &connection.lost {
            Some(error) => {
                tracing::info!(
                    manager = self.manager,
                    waited,
                    "waiting for the runner to exit; wrapper unreachable: {error}"
                );
            }
            None => {
                let left = connection.last.as_ref().and_then(Snapshot::jobs_left);
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

impl<W: Wrapper, A> Drain<'_, W, A> {
    /// Requests the shutdown that is wanted now.
    async fn request(&mut self, connection: &mut ConnectionState) -> Result<Snapshot, ClientError> {
        // Before the call, which may be dropped in the middle.
        let before = self.requested;
        self.requested = before.max(Requested::Perhaps);
        let forceful = self.want == Mode::Forceful;
        let request = DrainRequest { forceful, ..self.policy.request.clone() };
        match self.wrapper.until(self.deadline).drain(&request).await {
            Ok(snapshot) => {
                let joined = self.started_by == StartedBy::Joined;
                tracing::info!(manager = self.manager, forceful, joined, status = %snapshot.report.status, "shutdown requested");
                self.asked = Some(Instant::now());
                self.requested = Requested::Accepted;
                self.received(&snapshot, connection);
                Ok(snapshot)
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
    fn must_join(&mut self, snapshot: &Snapshot) -> bool {
        if self.asked.is_some() {
            return false;
        }
        let Some(detail) = snapshot.detail.as_deref() else {
            if self.started_by == StartedBy::Joined && self.policy.request.callback.is_some() {
                self.no_callback = Some(NoCallback::Upstream);
            }
            return self.want == Mode::Forceful;
        };
        self.want == Mode::Forceful || detail.drain.as_ref().is_none_or(|it| it.id != self.policy.request.id)
    }

    /// A runner that had ended before: its wrapper makes the callback at once. A refused callback does not keep the runner running.
    async fn add_callback(&mut self, snapshot: &Snapshot) -> Result<(), ClientError> {
        if self.requested != Requested::No
            || self.no_callback.is_some()
            || self.policy.request.callback.is_none()
        {
            return Ok(());
        }
        let Some(detail) = snapshot.detail.as_deref() else {
            self.no_callback = Some(NoCallback::Upstream);
            return Ok(());
        };
        if detail.drain.as_ref().is_some_and(|drain| drain.id == self.policy.request.id) {
            return Ok(());
        }
        match self.wrapper.until(self.deadline).drain(&self.policy.request).await {
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

    /// Only a host that was absent all the time may be taken for terminated, and only before the shutdown was requested.
    fn may_assume(&self, connection: &ConnectionState) -> bool {
        self.policy.on_unreachable == OnUnreachable::AssumeTerminated
            && self.requested == Requested::No
            && connection.absences > 0
    }

    fn assumed(&self, connection: &ConnectionState, error: ClientError) -> Drained {
        let waited = self.policy.start.elapsed();
        Drained::AssumedTerminated { attempts: connection.absences, waited, error }
    }

    fn unreached(&self, connection: &ConnectionState, error: ClientError) -> NotDrained {
        NotDrained::Connect {
            attempts: connection.failures,
            waited: self.policy.start.elapsed(),
            requested: self.requested,
            error,
        }
    }

    fn received(&self, snapshot: &Snapshot, connection: &mut ConnectionState) {
        if connection.last.as_ref().is_none_or(|last| last.report != snapshot.report) {
            let drain = snapshot.detail.as_deref().and_then(|detail| detail.drain.as_ref());
            let drained_by = drain.map(|drain| drain.id.as_str());
            tracing::info!(manager = self.manager, status = %snapshot.report.status, drained_by, "runner status changed");
        }
        connection.last = Some(snapshot.clone());
    }
}

#[cfg(test)]
mod tests;
