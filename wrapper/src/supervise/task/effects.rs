//! How the effects of a transition are performed on the child.

use std::{collections::VecDeque, io, sync::Arc};

use tracing::{error, info, warn};

use super::{Task, observation, requests};
use crate::supervise::{
    core::{Callback, ChildInfo, Effect, Event, Moment},
    process::Signal,
    surroundings::Completion,
};

impl Task {
    /// The exit of the child that has exited. Requests and timers wait meanwhile, for seconds, because they could act on a child that no longer exists.
    pub(super) async fn exit(&mut self) -> Option<Event> {
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
        let leftovers = self.supervision.leftovers(&self.policy);
        let child = self.child.as_mut()?;
        let pid = child.pid();
        let exit = child.exit(leftovers).await;
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
        Some(Event::Exited(exit))
    }

    pub(super) async fn perform(&mut self, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
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
            Effect::Leave => {}
        }
    }

    async fn signal(&mut self, signal: Signal) -> Option<Event> {
        let child = self.child.as_mut()?;
        let pid = child.pid();
        match child.signal(signal).await {
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
        match self.try_spawn().await {
            Ok(child) => {
                info!(pid = child.pid(), "runner started");
                Event::Spawned(child)
            }
            Err(error) => {
                self.child = None;
                error!(%error, "cannot start the runner");
                Event::SpawnFailed(Arc::from(error.to_string()))
            }
        }
    }

    async fn try_spawn(&mut self) -> io::Result<ChildInfo> {
        let child = self.child.insert(self.spawner.spawn().await?);
        let info = ChildInfo { process: child.identity(), started: Moment::now() };
        self.note(Event::Forked(info));
        // The next wrapper must be able to find the child before it becomes a runner, in the state file or by its cgroup. Otherwise that wrapper would
        // start a second runner or, with an older state file, report that the runner has exited.
        self.save();
        if let Some(child) = &mut self.child {
            if let Some(error) = &self.supervision.save_error
                && !child.has_cgroup()
            {
                child.kill_and_collect();
                return Err(io::Error::other(format!("the state file cannot be written: {error}")));
            }
            child.release().await?;
        }
        Ok(info)
    }

    pub(super) fn send(&mut self, callback: Callback) {
        let completion = Completion { callback: callback.clone(), commands: self.sender.clone() };
        self.surroundings.send(callback, completion);
    }
}
