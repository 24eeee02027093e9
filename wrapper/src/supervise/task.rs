//! The task that owns the child.

use std::{fmt, io, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tracing::{debug, error, info, warn};

use super::{
    command::{Answer, Command, Refusal, Request},
    handle::Handle,
    pending_callback::{Callbacks, Made, Owed},
    policy::Policy,
    state::{End, State, Supervision},
    state_writer::{Keep, Keeper},
    statistics::Tally,
    table::{Effect, Event, Step},
};
use super::{
    output::LastLines,
    process::{Child, Exit, Identity, Platform, Signal, report},
    state_file::Saved,
};
use crate::daemon::counters::Counters;

/// Requests that may wait for the task; each takes it microseconds.
const QUEUE: usize = 64;

/// How often a child is looked at while a signal waits for its handlers.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// How long an ending wrapper waits for callbacks that still fail: two attempts that hang, or half a minute of those that fail quickly.
const FINISH_LIMIT: Duration = Duration::from_secs(25);

/// So many callbacks are kept in the state file, for a later wrapper to make.
const MAX_OWED: usize = 64;

/// How the supervisor's work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The child has ended, like this.
    Ended(End),
    /// The child lives, and the next wrapper adopts it.
    Detached,
}

/// The owner of the child. Nothing happens before [`Task::run`] is polled.
#[derive(Debug)]
pub struct Task<P: Platform, C> {
    policy: Policy,
    platform: P,
    callbacks: C,
    supervision: Supervision,
    tally: Tally,
    counters: Arc<Counters>,
    child: Option<P::Child>,
    keeper: Keeper,
    /// An earlier wrapper's state was taken up, and is to be written as this one goes on with it.
    resumed: bool,
    /// Callbacks that are being made.
    owed: Vec<Owed>,
    /// The child's, for the state file.
    identity: Option<Identity>,
    reading: Option<Reading>,
    callers: mpsc::WeakSender<Command>,
    commands: mpsc::Receiver<Command>,
    published: watch::Sender<Supervision>,
}

/// The last lines of a failed child's log, while they are being read.
struct Reading(LastLines);

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reading")
    }
}

/// What woke the task up.
enum Wake {
    Event(Event),
    Command(Command),
    SaveAgain,
    /// The state file may have been removed.
    Look,
}

impl<P: Platform, C: Callbacks> Task<P, C> {
    /// A supervisor without a child, and the way to it.
    pub fn new(policy: Policy, platform: P, callbacks: C) -> (Self, Handle) {
        let (sender, commands) = mpsc::channel(QUEUE);
        let supervision = Supervision::default();
        let (published, receiver) = watch::channel(supervision.clone());
        let task = Self {
            policy,
            platform,
            callbacks,
            supervision,
            tally: Tally::default(),
            counters: Arc::default(),
            child: None,
            keeper: Keeper::default(),
            resumed: false,
            owed: Vec::new(),
            identity: None,
            reading: None,
            callers: sender.downgrade(),
            commands,
            published,
        };
        (task, Handle { commands: sender, published: receiver })
    }

    /// Keeps what the next wrapper has to know in `store`, when this one is killed.
    ///
    /// # Errors
    ///
    /// The thread that writes cannot be started.
    pub fn keep(mut self, store: impl Keep) -> io::Result<Self> {
        self.keeper = Keeper::new(store)?;
        Ok(self)
    }

    /// Counts what happens in `counters`.
    #[must_use]
    pub fn count(mut self, counters: Arc<Counters>) -> Self {
        self.counters = counters;
        self
    }

    /// Takes up what an earlier wrapper left: its state, its child where that lives, and the callbacks that it has not made.
    #[must_use]
    pub fn resume(mut self, supervision: Supervision, child: Option<P::Child>, owed: Vec<Owed>) -> Self {
        self.identity = child.as_ref().and_then(|child| child.identity().ok());
        self.child = child;
        self.tally = Tally::of(&supervision.state);
        self.supervision = supervision;
        let now = Instant::now();
        // Those of a wrapper that was killed before it could begin with them.
        let unmade = self.supervision.state.unmade_callbacks().into_iter();
        let new = unmade.filter(|callback| owed.iter().all(|owed| owed.callback != *callback));
        let new: Vec<_> = new.map(|callback| Owed { callback, since: now }).collect();
        for owed in owed.into_iter().chain(new) {
            self.call(owed);
        }
        self.resumed = true;
        self.publish();
        self
    }

    /// Works until it was asked to leave and the child has ended, or to detach from it.
    ///
    /// Dropping this future lets the child live on: only a stop ends it.
    pub async fn run(mut self) -> Outcome {
        if self.resumed {
            self.save().await;
        }
        loop {
            let (event, reply) = match self.wait().await {
                Wake::Event(event) => (event, None),
                Wake::SaveAgain => {
                    self.save().await;
                    continue;
                }
                Wake::Look => {
                    self.keeper.look().await;
                    continue;
                }
                Wake::Command(Command { request: Request::Detach, reply }) => {
                    let answer =
                        if self.keeper.keeps() { Ok(Answer::Done) } else { Err(Refusal::NoStateFile) };
                    let detaches = answer.is_ok();
                    let _gone = reply.send(answer);
                    if detaches {
                        return Outcome::Detached;
                    }
                    continue;
                }
                Wake::Command(Command { request: Request::Ping, reply }) => {
                    let _gone = reply.send(Ok(Answer::Already));
                    continue;
                }
                Wake::Command(Command { request, reply }) => match Event::try_from(request) {
                    Ok(event) => (event, Some(reply)),
                    Err(()) => continue,
                },
            };
            debug!(?event, "processing event");
            let (left, answer) = self.handle(event).await;
            if let Some(reply) = reply {
                // Whoever asked may have gone; what they asked for happens all the same.
                let _gone = reply.send(answer);
            }
            if left && let State::Exited { end, .. } = &self.supervision.state {
                let end = end.clone();
                self.finish_callbacks().await;
                self.leave_callbacks().await;
                return Outcome::Ended(end);
            }
        }
    }

    /// Waits until the callbacks are made, for [`FINISH_LIMIT`] at most. Requests are refused meanwhile.
    async fn finish_callbacks(&mut self) {
        let until = Instant::now() + FINISH_LIMIT;
        while !self.owed.is_empty() {
            match timeout_at(until, self.commands.recv()).await {
                Ok(Some(Command { request: Request::Called(callback), .. })) => {
                    // Who reports this waits for no answer.
                    let _no_answer = self.step(Event::Called(callback)).await;
                }
                Ok(Some(Command { request: Request::Ping, reply })) => {
                    let _gone = reply.send(Ok(Answer::Already));
                }
                // Dropping the request tells its caller that the supervisor has ended.
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Leaves nothing in the state file but the callbacks that could not be made.
    async fn leave_callbacks(&mut self) {
        let count = self.owed.len();
        if count == 0 {
            return std::mem::take(&mut self.keeper).finish().await;
        }
        if self.keeper.keeps() {
            warn!(count, "exiting with unsent shutdown callbacks; the next wrapper sends them");
            self.keeper.save(Saved::new(&Supervision::default(), None, &self.owed)).await;
        } else {
            error!(
                count,
                "exiting with unsent shutdown callbacks; they are lost, because there is no state file"
            );
        }
    }

    async fn wait(&mut self) -> Wake {
        // An ended child whose remains are being killed is past every limit.
        let ending = self.child.as_ref().is_some_and(Child::is_ending_remains);
        let due = self.supervision.due().filter(|_| !ending);
        let forceful = self.supervision.ends_remains(&self.policy);
        let probe = self.supervision.holds_signal().then(|| Instant::now() + PROBE_INTERVAL);
        tokio::select! {
            biased;
            // The end comes first: nothing that is asked or due may be decided on a child that is dead already.
            exit = ended(self.child.as_mut(), forceful) => Wake::Event(Event::Ended(exit)),
            // Then time, which cannot starve the others because each moment comes once.
            () = until(due) => Wake::Event(Event::Tick),
            // Once every handle is gone, nobody asks for anything any more; the child is watched on.
            Some(command) = self.commands.recv() => Wake::Command(command),
            () = until(probe) => Wake::Event(self.probe()),
            lines = read(self.reading.as_mut()) => {
                self.reading = None;
                Wake::Event(Event::LogRead(lines.into()))
            }
            () = until(self.keeper.due()) => Wake::SaveAgain,
            () = self.keeper.disturbed() => Wake::Look,
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
    async fn handle(&mut self, event: Event) -> (bool, Result<Answer, Refusal>) {
        let ended = matches!(event, Event::Ended(_));
        if ended {
            self.identity = None;
        }
        let (follows, mut leave, answer) = self.step(event).await;
        if ended && let Some(child) = self.child.take() {
            self.reap(child);
        }
        // A spawn is followed by its result, and a signal that has just come to be held may not have to wait at all.
        let mut next = follows.or_else(|| self.supervision.holds_signal().then(|| self.probe()));
        while let Some(event) = next {
            let (follows, leaves, _) = self.step(event).await;
            leave |= leaves;
            next = follows;
        }
        (leave, answer)
    }

    /// One event through the table. The deeds come before the word about them: whoever reads that the child is stopping may rely
    /// on its signal.
    async fn step(&mut self, event: Event) -> (Option<Event>, bool, Result<Answer, Refusal>) {
        let before = std::mem::take(&mut self.supervision);
        if let Event::Called(callback) = &event
            && let Some(at) = self.owed.iter().position(|owed| owed.callback == *callback)
        {
            self.owed.remove(at);
        }
        let name = before.state.name();
        let now = Instant::now();
        let Step { next, effects, answer } = before.on(event, now, &self.policy);
        if next.state.name() != name {
            info!(from = name, to = next.state.name(), "runner state changed");
        }
        self.counters.happened(self.tally.see(&next.state, now));
        self.supervision = next;
        // Written down before it is done, so that a wrapper that is killed in between leaves no deed that nobody knows of.
        self.save().await;
        let leave = effects.contains(&Effect::Leave);
        // Spawn and ReadLog are the effects that may lead to an event, and no step has more than one of them.
        let mut follows = None;
        for effect in effects {
            follows = self.perform(effect).await.or(follows);
        }
        self.publish();
        (follows, leave, answer)
    }

    async fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Spawn => Some(self.spawn().await),
            Effect::Signal(signal) => {
                self.signal(signal).await;
                None
            }
            Effect::KillGroup => {
                if let Some(child) = &mut self.child
                    && let Err(error) = child.kill_group()
                {
                    error!(%error, pid = child.pid(), "cannot kill the runner's process group");
                }
                self.note_identity().await;
                None
            }
            Effect::Callback(callback) => {
                self.call(Owed { callback, since: Instant::now() });
                None
            }
            Effect::ReadLog { pid, started } => {
                self.reading = self.platform.last_lines(pid, started).map(Reading);
                self.reading.is_none().then(|| Event::LogRead(Arc::default()))
            }
            Effect::Leave => None,
        }
    }

    async fn spawn(&mut self) -> Event {
        // It would tell of another child.
        self.reading = None;
        match self.try_spawn().await {
            Ok(pid) => {
                info!(pid, "runner started");
                Event::Spawned(pid)
            }
            Err(error) => {
                error!(%error, "cannot start the runner");
                Event::SpawnFailed(Arc::from(error.to_string()))
            }
        }
    }

    async fn try_spawn(&mut self) -> io::Result<u32> {
        let mut child = self.platform.spawn()?;
        self.identity = Some(child.identity()?);
        // From here on a later wrapper can find it; only now may it become a runner.
        if let Err(error) = self.keeper.save_start(self.present()).await {
            self.identity = None;
            child.discard();
            let why = "cannot write the state file; without it the next wrapper could start a second runner";
            return Err(io::Error::new(error.kind(), format!("{why}: {error}")));
        }
        child.release().await.inspect_err(|_| self.identity = None)?;
        let pid = child.pid();
        self.child = Some(child);
        Ok(pid)
    }

    /// What the state file is to tell.
    fn present(&self) -> Saved {
        Saved::new(&self.supervision, self.identity.as_ref(), &self.owed)
    }

    async fn save(&mut self) {
        self.keeper.save(self.present()).await;
    }

    fn call(&mut self, owed: Owed) {
        let made = Made::new(owed.callback.clone(), self.callers.clone());
        self.callbacks.call(owed.callback.clone(), owed.since, made);
        self.owed.push(owed);
        if self.owed.len() > MAX_OWED {
            warn!("too many failing shutdown callbacks; removed the oldest one from the state file");
            self.owed.remove(0);
        }
    }

    async fn signal(&mut self, signal: Signal) {
        let Some(child) = &mut self.child else { return };
        match child.signal(signal) {
            Ok(()) => info!(%signal, pid = child.pid(), "signal sent to the runner"),
            // The phase moves on by time, up to SIGKILL, whatever became of this one.
            Err(error) => error!(%error, %signal, pid = child.pid(), "cannot send signal to the runner"),
        }
        self.note_identity().await;
    }

    /// The child's processes are part of what the next wrapper has to know, once they were looked for.
    async fn note_identity(&mut self) {
        let Some(now) = self.child.as_ref().and_then(|child| child.identity().ok()) else { return };
        if self.identity.as_ref().is_some_and(|identity| *identity != now) {
            self.identity = Some(now);
            self.save().await;
        }
    }

    fn reap(&mut self, child: P::Child) {
        let (pid, was_forceful) = (child.pid(), child.is_ending_remains());
        let left = child.reap();
        // Those that could not be killed were reported then.
        if !was_forceful {
            report(pid, &left, false);
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

impl TryFrom<Request> for Event {
    /// The task answers some by itself, and the table does not know them.
    type Error = ();

    fn try_from(request: Request) -> Result<Self, ()> {
        Ok(match request {
            Request::Boot => Self::Boot,
            Request::Start => Self::Start,
            Request::Stop(stop) => Self::Stop(stop),
            Request::Cancel(id) => Self::Cancel(id),
            Request::Reload => Self::Reload,
            Request::Leave(stop) => Self::Leave(stop),
            Request::Called(callback) => Self::Called(callback),
            Request::Detach | Request::Ping => return Err(()),
        })
    }
}

/// Waits for the child's end, and where nothing of it may live on, for that of its other processes.
async fn ended<C: Child>(child: Option<&mut C>, forceful: bool) -> Exit {
    match child {
        Some(child) => {
            let exit = child.ended().await;
            if forceful {
                report(child.pid(), &child.end_remains().await, true);
            }
            exit
        }
        None => std::future::pending().await,
    }
}

async fn read(reading: Option<&mut Reading>) -> Vec<String> {
    match reading {
        Some(Reading(lines)) => lines.await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
