//! The task that owns the child.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tracing::{debug, error, info, warn};

use super::{
    command::{Answer, Command, Refusal, Request},
    handle::Handle,
    policy::Policy,
    state::{Effect, End, Event, State, Step, Supervision},
};
use crate::{
    callback::Callback,
    process::{Child, Exit, Platform, Signal},
};

/// Requests that may wait for the task; each takes it microseconds.
const QUEUE: usize = 64;

/// How often a child is looked at while a signal waits for its handlers.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// Makes the callbacks. It must return at once, and make the request elsewhere.
pub trait Callbacks: Send + 'static {
    fn call(&mut self, callback: Callback);
}

/// The owner of the child. Nothing happens before [`Task::run`] is polled.
#[derive(Debug)]
pub struct Task<P: Platform, C> {
    policy: Policy,
    platform: P,
    callbacks: C,
    supervision: Supervision,
    child: Option<P::Child>,
    commands: mpsc::Receiver<Command>,
    published: watch::Sender<Supervision>,
}

/// What woke the task up.
enum Wake {
    Event(Event),
    Command(Command),
}

impl<P: Platform, C: Callbacks> Task<P, C> {
    /// A supervisor without a child, and the way to it.
    pub fn new(policy: Policy, platform: P, callbacks: C) -> (Self, Handle) {
        let (sender, commands) = mpsc::channel(QUEUE);
        let supervision = Supervision::default();
        let (published, receiver) = watch::channel(supervision.clone());
        let task = Self { policy, platform, callbacks, supervision, child: None, commands, published };
        (task, Handle { commands: sender, published: receiver })
    }

    /// Works until it was asked to leave and the child has ended; answers how that was.
    ///
    /// Dropping this future lets the child live on: only a stop ends it.
    pub async fn run(mut self) -> End {
        loop {
            let (event, reply) = match self.wait().await {
                Wake::Event(event) => (event, None),
                Wake::Command(Command { request, reply }) => (Event::from(request), Some(reply)),
            };
            debug!(?event, "event");
            let (left, answer) = self.handle(event);
            if let Some(reply) = reply {
                // Whoever asked may have gone; what they asked for happens all the same.
                let _gone = reply.send(answer);
            }
            if left && let State::Exited { end, .. } = self.supervision.state {
                return end;
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let due = self.supervision.due();
        let probe = self.supervision.holds_signal().then(|| Instant::now() + PROBE_INTERVAL);
        tokio::select! {
            biased;
            // The end comes first: nothing that is asked or due may be decided on a child that is dead already.
            exit = ended(self.child.as_mut()) => Wake::Event(Event::Ended(exit)),
            // Then time, which cannot starve the others because each moment comes once.
            () = until(due) => Wake::Event(Event::Tick),
            command = self.commands.recv() => match command {
                Some(command) => Wake::Command(command),
                // Every handle is gone, so nobody will ask for the end either; the child is watched on.
                None => std::future::pending().await,
            },
            () = until(probe) => Wake::Event(self.probe()),
        }
    }

    /// Looks whether the child handles SIGQUIT by now.
    fn probe(&self) -> Event {
        match &self.child {
            Some(child) if child.handles_quit() => Event::HandlesQuit,
            _ => Event::Tick,
        }
    }

    /// Takes one event through the table, and what follows from its effects as well.
    ///
    /// Answers whether the task is to end, and what to tell whoever sent the event.
    fn handle(&mut self, event: Event) -> (bool, Result<Answer, Refusal>) {
        let ended = matches!(event, Event::Ended(_));
        let (follows, mut leave, answer) = self.step(event);
        if ended && let Some(child) = self.child.take() {
            self.reap(child);
        }
        // A spawn is followed by its result, and a signal that has just come to be held may not have to wait at all.
        let mut next = follows.or_else(|| self.supervision.holds_signal().then(|| self.probe()));
        while let Some(event) = next {
            let (follows, leaves, _) = self.step(event);
            leave |= leaves;
            next = follows;
        }
        (leave, answer)
    }

    /// One event through the table. The deeds come before the word about them: whoever reads that the child is stopping may rely
    /// on its signal.
    fn step(&mut self, event: Event) -> (Option<Event>, bool, Result<Answer, Refusal>) {
        let before = std::mem::take(&mut self.supervision);
        let name = before.state.name();
        let Step { next, effects, answer } = before.on(event, Instant::now(), &self.policy);
        if next.state.name() != name {
            info!(from = name, to = next.state.name(), "state");
        }
        self.supervision = next;
        let leave = effects.contains(&Effect::Leave);
        // Spawn is the one effect that leads to an event, and no step has two of it.
        let follows = effects.into_iter().filter_map(|effect| self.perform(effect)).last();
        self.publish();
        (follows, leave, answer)
    }

    fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Spawn => Some(self.spawn()),
            Effect::Signal(signal) => {
                self.signal(signal);
                None
            }
            Effect::KillGroup => {
                if let Some(child) = &mut self.child
                    && let Err(error) = child.kill_group()
                {
                    error!(%error, pid = child.pid(), "cannot kill the runner's process group");
                }
                None
            }
            Effect::Callback(callback) => {
                self.callbacks.call(callback);
                None
            }
            Effect::Leave => None,
        }
    }

    fn spawn(&mut self) -> Event {
        match self.platform.spawn() {
            Ok(child) => {
                let pid = child.pid();
                info!(pid, "runner started");
                self.child = Some(child);
                Event::Spawned(pid)
            }
            Err(error) => {
                error!(%error, "cannot start the runner");
                Event::SpawnFailed(Arc::from(error.to_string()))
            }
        }
    }

    fn signal(&mut self, signal: Signal) {
        let Some(child) = &mut self.child else { return };
        match child.signal(signal) {
            Ok(()) => info!(%signal, pid = child.pid(), "signal sent"),
            // The phase moves on by time, up to SIGKILL, whatever became of this one.
            Err(error) => error!(%error, %signal, pid = child.pid(), "cannot signal the runner"),
        }
    }

    fn reap(&mut self, child: P::Child) {
        let pid = child.pid();
        if child.reap() {
            warn!(pid, "other processes of the runner's group live on");
        }
    }

    fn publish(&self) {
        self.published.send_if_modified(|published| {
            let changed = *published != self.supervision;
            published.clone_from(&self.supervision);
            changed
        });
    }
}

impl From<Request> for Event {
    fn from(request: Request) -> Self {
        match request {
            Request::Boot => Self::Boot,
            Request::Start => Self::Start,
            Request::Stop(stop) => Self::Stop(stop),
            Request::Cancel(id) => Self::Cancel(id),
            Request::Reload => Self::Reload,
            Request::Leave(stop) => Self::Leave(stop),
        }
    }
}

async fn ended<C: Child>(child: Option<&mut C>) -> Exit {
    match child {
        Some(child) => child.ended().await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
