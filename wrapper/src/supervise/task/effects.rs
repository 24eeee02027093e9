//! How the effects of a transition are performed on the child.

use std::{collections::VecDeque, io, sync::Arc};

use tracing::{error, info, warn};

use super::{Change, Owner, Task, observation, requests};
use crate::supervise::{
    core::{Callback, Effect, Event, Moment, Refusal},
    process::{Exit, Signal},
    surroundings::Completion,
};

impl<O: Owner> Task<O> {
    /// What has happened to the child. After its exit, requests and timers wait, for seconds, because they could act on a child that no longer exists.
    pub(super) async fn news(&mut self) -> io::Result<Option<Event>> {
        let Some(change) = self.owner.news().await? else { return Ok(None) };
        if let Change::Exited(exit) = change {
            self.note_last_reads(exit).await;
        }
        Ok(Some(match change {
            Change::Appeared(child) => Event::Appeared(child),
            Change::Exited(exit) => Event::Exited(exit),
            Change::NotRestarted => Event::NotRestarted,
        }))
    }

    /// Looks whether there is a child that the state does not have. The request follows what was found. From now on, others cannot start a child.
    pub(super) async fn look(&mut self, request: &Event) -> Result<Vec<(Event, bool)>, Refusal> {
        let held = self.owner.hold(request.is_held() || self.supervision.is_held());
        let news = match held {
            Ok(()) => self.news().await,
            Err(error) => Err(error),
        };
        match news {
            Ok(None) => Ok(vec![(Event::Looked(Box::new(request.clone())), true)]),
            // Nothing else is known yet.
            Ok(Some(news)) => Ok(vec![(news, false), (request.clone(), true)]),
            Err(error) => {
                error!(%error, "cannot read whether the runner runs");
                Err(Refusal::OwnerSilent)
            }
        }
    }

    /// What was read of a child that has exited now, before its exit is handled.
    async fn note_last_reads(&mut self, exit: Exit) {
        // The last probe may show that it aborts its jobs.
        if matches!(self.observed.has_changed(), Ok(true))
            && let Some(event) = observation(&mut self.observed).await
        {
            self.note(event);
        }
        // The last read may show a request that SIGQUIT has cancelled.
        if !self.supervision.awaits_gap()
            && matches!(self.requests.has_changed(), Ok(true))
            && let Some(event) = requests(&mut self.requests).await
        {
            self.note(event);
        }
        let pid = self.supervision.state.child().map(|child| child.pid());
        if self.supervision.is_drain_aborted() && exit.is_success() {
            warn!(
                pid,
                "the runner aborted its jobs during the drain, because another process sent SIGTERM or SIGINT to the runner"
            );
        } else if self.supervision.has_lost_results(Moment::now()) {
            warn!(
                pid,
                "the runner may have given up reporting the end of at least one job to GitLab during the drain"
            );
        }
    }

    pub(super) async fn perform(&mut self, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
            Effect::Save => self.save(),
            Effect::Spawn => {
                self.publish();
                events.push_back(self.spawn().await);
            }
            Effect::Signal(signal) => events.extend(self.signal(signal).await),
            Effect::Callback(callback) => self.send(callback),
            Effect::ReadLog(child) => {
                self.reading =
                    self.journal.as_ref().map(|journal| journal.last_error(child.pid(), child.started.at));
            }
            Effect::Count(counted) => self.surroundings.count(counted),
            Effect::Exited(exit, stop) => self.surroundings.exited(exit, stop.as_deref()),
            Effect::Look(_) | Effect::Leave => {}
        }
    }

    async fn signal(&mut self, signal: Signal) -> Option<Event> {
        let pid = self.supervision.state.child()?.pid();
        match self.owner.signal(signal).await {
            Ok(()) => {
                info!(%signal, pid, "signal sent to the runner");
                if signal == Signal::Drain
                    && let Some(open @ 1..) =
                        self.supervision.state.stop().and_then(|stop| stop.open_requests)
                {
                    warn!(
                        pid,
                        open_requests = open,
                        "the runner cancels its open job requests; jobs that GitLab has assigned to these requests are lost"
                    );
                }
                Some(Event::SignalSent(signal))
            }
            Err(error) => {
                error!(
                    %error, %signal, pid,
                    "cannot send signal to the runner"
                );
                Some(Event::SignalRefused(signal, Arc::from(error.to_string())))
            }
        }
    }

    async fn spawn(&mut self) -> Event {
        // It is of an earlier child.
        self.reading = None;
        match self.owner.start().await {
            Ok(child) => {
                info!(pid = child.pid(), "runner started");
                Event::Spawned(child)
            }
            Err(error) => {
                error!(%error, "cannot start the runner");
                Event::SpawnFailed(Arc::from(error.to_string()))
            }
        }
    }

    pub(super) fn send(&mut self, callback: Callback) {
        let completion = Completion { callback: callback.clone(), commands: self.sender.clone() };
        self.surroundings.send(callback, completion);
    }
}
