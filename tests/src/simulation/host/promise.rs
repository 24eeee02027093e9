//! What the requests to a wrapper promise, and what its signals are allowed to do: a model of the promises, independent of the core.
//!
//! A promise is as durable as the state file: `docs/wrapper/reference.md`, "State file". Each loss is counted with the reason that this page names.

use grit_wrapper::supervise::{Answer, Event, Mode, Refusal, Stop};
use tokio::time::{Duration, Instant};

use super::{
    super::world::{Happening, Inner},
    Happens, Owner,
    file::File,
};

/// The requests that are in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::simulation) struct Promise {
    /// The number of requests to start the runner, or to cancel a drain, before.
    starts: u32,
    /// A drain of a client was accepted, and was neither cancelled nor followed by a start.
    pub(in crate::simulation) accepted: bool,
    /// No client has an answer: the next wrapper has found the closed unit, without a state file.
    pub(super) is_found: bool,
    /// The wrapper exits after its runner.
    pub(super) leaving: bool,
    /// Some stop was requested: the runner may get SIGQUIT.
    pub(super) stops: bool,
    /// A wrapper may continue a drain that has ended, for a reason that the documents name.
    pub(super) may_continue: bool,
    /// A forceful stop was requested: the runner may get SIGTERM.
    pub(super) forced: bool,
    /// A runner of this drain has dropped a result. The drain goes on if another one is started.
    pub(super) has_lost_result: bool,
    /// When a stop in progress becomes forceful.
    pub(super) deadline: Option<Instant>,
}

/// The part of an event that concerns the promises.
pub(super) enum Request {
    Stop { is_of_client: bool, is_forceful: bool, deadline: Option<Instant> },
    Cancel,
    Start,
    None,
}

impl Request {
    pub(super) fn of(event: &Event) -> Self {
        let stop = |stop: &Stop, is_of_client| Self::Stop {
            is_of_client,
            is_forceful: stop.mode == Mode::Forceful,
            deadline: stop.deadline.map(|deadline| deadline.at),
        };
        match event {
            // A signal repeats its own stop.
            Event::Stop(asked) => stop(asked, asked.id.as_str() != "signal"),
            Event::Leave(asked) => stop(asked, false),
            Event::Looked(request) => Self::of(request),
            Event::Start => Self::Start,
            Event::Cancel(_) => Self::Cancel,
            _ => Self::None,
        }
    }
}

impl Promise {
    /// The request had this answer.
    pub(super) fn answered(&mut self, request: &Request, answer: &Result<Answer, Refusal>, leaves: bool) {
        if answer.is_err() {
            return;
        }
        match request {
            Request::Stop { is_of_client, is_forceful, deadline } => {
                // Of two deadlines, the earlier one counts: `docs/wrapper/draining.md`, "Joined drains".
                let earlier = self.deadline.filter(|_| self.stops);
                self.deadline = earlier.into_iter().chain(*deadline).min();
                self.stops = true;
                self.accepted |= is_of_client;
                self.is_found &= !is_of_client;
                self.forced |= is_forceful;
                self.leaving |= leaves;
            }
            Request::Start | Request::Cancel => *self = Self { starts: self.starts + 1, ..Self::default() },
            Request::None => {}
        }
    }

    /// The runner has exited: its deadline and its forceful stop do not concern the next one.
    pub(super) fn runner_ended(&mut self) {
        (self.deadline, self.forced) = (None, false);
        self.stops = self.accepted || self.leaving;
    }

    /// The record of this promise is lost, except that a drain of a client is in force: `Supervision::of_lost_stop`.
    pub(super) fn record_is_lost(&mut self) {
        *self = Self { starts: self.starts, accepted: true, is_found: true, stops: true, ..Self::default() };
    }

    /// The wrapper exits: nothing but a drain of a client goes on.
    pub(super) fn wrapper_leaves(&mut self) {
        let may_continue = self.may_continue;
        *self = Self {
            starts: self.starts,
            accepted: self.accepted,
            is_found: self.is_found,
            may_continue,
            ..Self::default()
        };
    }

    pub(super) fn allows_terminate(&self) -> bool {
        self.stops && (self.forced || self.deadline.is_some_and(|deadline| deadline <= Instant::now()))
    }
}

/// After its deadline, a stop becomes forceful within this time: other events, such as a slow exec, come before.
const LATE: Duration = Duration::from_secs(25);

impl Inner {
    /// A request had an answer: what it promises, and what must not have happened before.
    pub(super) fn requested(&mut self, instance: &str, request: &Request, is_accepted: bool) {
        let Some(host) = self.hosts.get_mut(instance).filter(|_| is_accepted) else { return };
        match request {
            Request::Stop { deadline: Some(deadline), .. } => {
                let Some(pid) = host.runner.as_ref().map(|runner| runner.pid) else { return };
                let at = *deadline + LATE;
                self.at(instance, at, Happening::Host(Happens::DeadlineIsOver { pid }));
            }
            Request::Cancel => {
                let facts = host.facts.as_ref().filter(|facts| facts.quit.is_some() && !facts.is_quit_lost);
                let Some(pid) = facts.map(|facts| facts.pid) else { return };
                if host.facts.as_ref().is_some_and(|facts| facts.is_quit_unsaved) {
                    // `docs/wrapper/reference.md`, "State file".
                    self.trace.count("limit: a drain is cancelled whose SIGQUIT could not be saved");
                } else {
                    self.violation(instance, format!("a drain of runner {pid} is cancelled after SIGQUIT"));
                }
            }
            Request::Stop { .. } | Request::Start | Request::None => {}
        }
    }

    /// A stop is made forceful at its deadline, by this wrapper or by a later one.
    pub(super) fn check_deadline(&mut self, instance: &str, pid: u32) {
        let now = Instant::now();
        let Some(host) = self.hosts.get(instance) else { return };
        let (Some(runner), Some(facts), Some(deadline)) = (&host.runner, &host.facts, host.promise.deadline)
        else {
            return;
        };
        if runner.pid != pid || facts.terminated.is_some() || facts.observed.aborts_jobs {
            return;
        }
        // The wrapper handles the timer some time after these.
        let begins = [Some(deadline), Some(facts.refuses_until), host.free_since];
        let until = begins.into_iter().flatten().max().unwrap_or(deadline) + LATE;
        if host.wrapper.is_none() || host.is_busy() || now < until {
            let at = until.max(now + LATE);
            return self.at(instance, at, Happening::Host(Happens::DeadlineIsOver { pid }));
        }
        if facts.is_terminate_cut {
            // `docs/wrapper/reference.md`, "State file": the next wrapper sends no second SIGTERM. SIGKILL follows at the limit.
            return self.trace.count("limit: SIGTERM was saved, and not sent: killed in between");
        }
        self.violation(instance, format!("the deadline of the drain of runner {pid} has no effect"));
    }

    /// The promises are lost with the state file, for a reason that the documents name.
    pub(super) fn forget(&mut self, instance: &str, why: &'static str) {
        self.forget_callbacks(instance, why != "normal exit");
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let (was_accepted, was_leaving) = (host.promise.accepted, host.promise.leaving);
        let Promise { may_continue, has_lost_result, .. } = host.promise;
        host.promise = Promise { may_continue, has_lost_result, ..Promise::default() };
        host.saved_promise = host.promise.clone();
        // A wrapper may have continued it whose predecessor was killed before its answer.
        if was_accepted || may_continue {
            host.forgotten = Some(why);
            self.trace.count(format!("drain lost: {why}"));
            self.log(instance, format!("the accepted drain is lost: {why}"));
        } else if was_leaving {
            self.trace.count(format!("stop of the service lost: {why}"));
        }
    }

    /// The wrapper has ended at a moment that it did not choose: what the state file lacks is lost.
    pub(super) fn keep_saved_promise(&mut self, instance: &str) {
        let is_lost = self.hosts.get(instance).is_some_and(|host| host.file_lost.is_some());
        self.forget_callbacks(instance, is_lost);
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let mut saved = host.saved_promise.clone();
        let is_older = saved.starts < host.promise.starts;
        let goes_on =
            matches!((&host.owner, &host.file), (Owner::Unit(unit), File::Missing) if unit.is_closed);
        let is_lost = host.promise.accepted && (!saved.accepted || is_older) && host.is_answered && !goes_on;
        let differs = host.promise != saved;
        // The next wrapper continues a drain that a start has ended: that start is lost.
        saved.may_continue |= saved.accepted && is_older;
        saved.accepted &= !is_older;
        if let Owner::Unit(unit) = &host.owner {
            // Without an answer, and before the unit is closed, nothing is promised.
            saved.accepted &= host.is_answered || unit.is_closed;
        }
        saved.starts = host.promise.starts;
        host.promise = saved;
        if is_lost && host.file_lost.is_none() {
            self.violation(instance, "an accepted drain is lost without a fault of the disk");
        } else if is_lost {
            let why = "the state file could not be written";
            host.forgotten = Some(why);
            self.trace.count(format!("drain lost: {why}"));
        } else if differs {
            self.trace.count("change of a drain lost: the state file did not have it");
        }
    }
}
