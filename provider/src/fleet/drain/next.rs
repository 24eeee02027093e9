//! What a drain does next, without I/O: [`next`] has a row for each rule.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::{
    outcome::{NotDrained, StartedBy},
    policy::{DrainPolicy, Mode, OnTimeout},
    process::{DrainingProcess, Replaced},
};
use crate::{
    client::{RunnerStatus, Snapshot},
    fleet::failure::Requested,
};

/// How long the wrapper may take to kill the runner, and this provider to read that.
const KILL_LIMIT: Duration = Duration::from_secs(75);

/// The maximum time that a wrapper leaves to a runner. A later time is an error of a clock.
const MAX_CLEANUP: Duration = Duration::from_secs(24 * 3600);

/// The minimum interval of repeated requests.
pub(super) const REQUEST_AGAIN: Duration = Duration::from_secs(5);

/// What is due after a status.
#[derive(Debug)]
pub(super) enum Next {
    /// The next status is read after a pause.
    Wait,
    /// The shutdown is requested.
    Request,
    /// The drain is recorded at a grit-wrapper whose runner has exited without a drain of a client. Otherwise the next wrapper on the host, for example
    /// after an upgrade, would start another runner.
    Record,
    /// The runner has exited, or its shutdown need not be followed any further.
    Done,
    Fail(NotDrained),
}

/// What a drain has requested, and what its wrapper has shown.
#[derive(Debug)]
pub(super) struct DrainState<'a> {
    pub(super) policy: &'a DrainPolicy,
    /// The mode to request: of the policy, or `Forceful` after the deadline.
    pub(super) want: Mode,
    /// The wrapper has received a forceful request, or may have received it.
    pub(super) force_sent: bool,
    /// The time of the last accepted request for `want`.
    pub(super) asked: Option<Instant>,
    /// `Accepted` also for the shutdown of another client, before this drain has joined it.
    pub(super) requested: Requested,
    pub(super) started_by: StartedBy,
    /// The wrapper has recorded the drain of a runner that had exited, or has refused to.
    pub(super) recorded: bool,
    pub(super) process: DrainingProcess,
    /// The PID of a draining process that is not reported any more, without its exit.
    replaced: Option<String>,
    /// The wrapper has reported when it kills the runner.
    has_kill_time: bool,
}

impl<'a> DrainState<'a> {
    pub(super) fn new(policy: &'a DrainPolicy) -> Self {
        Self {
            policy,
            want: policy.mode,
            force_sent: false,
            asked: None,
            requested: Requested::No,
            started_by: StartedBy::Before,
            recorded: false,
            process: DrainingProcess::default(),
            replaced: None,
            has_kill_time: false,
        }
    }

    /// The wrapper has sent this status.
    pub(super) fn read(&mut self, snapshot: &Snapshot) {
        match self.process.follow(snapshot) {
            None => {}
            Some(Replaced::ByRestart) => self.asked = None,
            Some(Replaced::Unexplained(pid)) => self.replaced = Some(pid),
        }
        if snapshot.report.status == RunnerStatus::InShutdown {
            if self.requested == Requested::No {
                self.started_by = StartedBy::Joined;
            }
            self.requested = Requested::Accepted;
        }
    }

    /// The deadline has passed: why the drain fails. `None`: a forceful shutdown is requested. Jobs that had no graceful part are not aborted: the runner
    /// may not know of any request.
    pub(super) fn at_deadline(&mut self) -> Option<NotDrained> {
        let may_force = self.policy.on_timeout == OnTimeout::Force && self.requested != Requested::No;
        if !may_force || self.want == Mode::Forceful {
            return Some(NotDrained::TimedOut { forceful: self.want == Mode::Forceful });
        }
        (self.want, self.asked) = (Mode::Forceful, None);
        None
    }

    /// The deadline has passed, and a forceful shutdown is requested since then.
    pub(super) fn is_forced(&self) -> bool {
        self.want != self.policy.mode
    }

    /// The wrapper has accepted a request.
    pub(super) fn accepted(&mut self) {
        self.asked = Some(Instant::now());
        self.requested = Requested::Accepted;
    }

    /// Until then, a wrapper that has received the forceful request has killed the runner: `shutdown_timeout` of the runner can be longer than the limit
    /// of this drain. Only the first report has an effect.
    pub(super) fn killed_at(&mut self, snapshot: &Snapshot) -> Option<Instant> {
        let drain = snapshot.drain().filter(|drain| self.is_forced() && drain.forceful)?;
        let kill_at = drain.deadline?;
        if std::mem::replace(&mut self.has_kill_time, true) {
            return None;
        }
        let by_clock = || (kill_at - OffsetDateTime::now_utc()).try_into().unwrap_or_default();
        let left = drain.until_deadline.unwrap_or_else(by_clock);
        Some(Instant::now() + left.min(MAX_CLEANUP) + KILL_LIMIT)
    }

    /// Whether a shutdown in progress is requested again. grit-wrapper then refuses a CI job that would wait for its own runner, also a job that repeats
    /// an interrupted drain. A forceful request ends the drain earlier; it is the only request for upstream's wrapper, which sends a signal for each.
    fn must_join(&self, snapshot: &Snapshot) -> bool {
        let request = &self.policy.request;
        let is_foreign = |drain: &crate::client::DrainInfo| drain.id != request.id;
        let is_wanted = snapshot.detail.is_some()
            && (!request.job_url.is_empty() || snapshot.drain().is_none_or(is_foreign));
        self.asked.is_none() && (self.want == Mode::Forceful || is_wanted)
    }

    fn must_record(&self, snapshot: &Snapshot) -> bool {
        let is_unrecorded = snapshot.detail.as_deref().is_some_and(|detail| !detail.is_drained_by_client());
        is_unrecorded && self.asked.is_none() && !self.recorded
    }
}

/// What is due after this status, which the state has read.
pub(super) fn next(state: &DrainState<'_>, snapshot: &Snapshot, now: Instant) -> Next {
    if let Some(pid) = &state.replaced {
        return Next::Fail(NotDrained::Replaced { pid: pid.clone() });
    }
    match snapshot.report.status {
        // The service manager may start another wrapper, and it another runner: the runner has not exited for this drain.
        RunnerStatus::Stopped if state.asked.is_none() && snapshot.exits_for_itself() => Next::Wait,
        RunnerStatus::Stopped if state.must_record(snapshot) => Next::Record,
        RunnerStatus::Stopped => Next::Done,
        RunnerStatus::InShutdown if state.must_join(snapshot) => Next::Request,
        RunnerStatus::InShutdown if state.policy.until.is_reached_in(snapshot) => Next::Done,
        RunnerStatus::InShutdown => Next::Wait,
        RunnerStatus::Running | RunnerStatus::Unknown(_) => match (snapshot.cancelled(), state.asked) {
            // The wrapper forgets it when it accepts the next drain, so it is of this one.
            (Some(cancelled), _) if state.requested == Requested::Accepted => {
                Next::Fail(NotDrained::Cancelled(cancelled.clone()))
            }
            // Repeated also after it was accepted: the request was lost (upstream's wrapper forgets a request before its process exists), or the
            // host restarted the runner.
            (_, Some(asked)) if now < asked + REQUEST_AGAIN => Next::Wait,
            _ => Next::Request,
        },
    }
}
