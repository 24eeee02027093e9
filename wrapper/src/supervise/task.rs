//! The task that has the child.

use std::{fmt, io, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tracing::{debug, error, info, warn};

use super::{
    callback_queue::{CallbackQueue, Callbacks, PendingCallback},
    context::{Context, Effect},
    end::End,
    event::{Answer, Event, Refusal},
    handle::{Command, Handle},
    output::LastLines,
    policy::Policy,
    process::{Child, Exit, Identity, Platform, Signal, report},
    state::{State, Supervision},
    state_file::{Keep, Saved},
    state_writer::StateWriter,
    statistics::Counted,
    table::Step,
};
use crate::supervise::log_key as key;

/// The maximum number of waiting requests. The task needs microseconds for each.
const QUEUE: usize = 64;

/// The interval at which the task checks whether the child handles a signal that is held back.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// How long a wrapper that shuts down waits for callbacks: two attempts that time out, or half a minute of quick failures.
const FINISH_LIMIT: Duration = Duration::from_secs(25);

/// How the supervisor's task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The child has ended.
    Ended(End),
    /// The child is running, and the next wrapper adopts it.
    Detached,
}

/// The supervisor. Nothing happens before [`Task::run`] is polled.
pub struct Task<P: Platform, C> {
    policy: Policy,
    platform: P,
    callbacks: CallbackQueue<C>,
    count: Box<dyn FnMut(Counted) + Send>,
    supervision: Supervision,
    child: Option<P::Child>,
    writer: StateWriter,
    /// The state of an earlier wrapper was restored, and is written again first.
    is_restored: bool,
    /// The identity of the child, for the state file.
    identity: Option<Identity>,
    /// The last log lines of a failed child, while they are being read.
    reading: Option<LastLines>,
    commands: mpsc::Receiver<Command>,
    published: watch::Sender<Supervision>,
}

impl<P: Platform, C> fmt::Debug for Task<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("supervision", &self.supervision).finish_non_exhaustive()
    }
}

/// The next thing to do.
enum Wake {
    Event(Event),
    Command(Command),
    WriteState,
    /// The state file may have been removed.
    CheckStateFile,
}

impl<P: Platform, C: Callbacks> Task<P, C> {
    /// A supervisor without a child, and the handle to it.
    pub fn new(policy: Policy, platform: P, callbacks: C) -> (Self, Handle) {
        let (sender, commands) = mpsc::channel(QUEUE);
        let supervision = Supervision::default();
        let (published, receiver) = watch::channel(supervision.clone());
        let task = Self {
            policy,
            platform,
            callbacks: CallbackQueue::new(callbacks, sender.downgrade()),
            count: Box::new(|_| {}),
            supervision,
            child: None,
            writer: StateWriter::default(),
            is_restored: false,
            identity: None,
            reading: None,
            commands,
            published,
        };
        (task, Handle { commands: sender, published: receiver })
    }

    /// Writes the state to this file, for the next wrapper.
    ///
    /// # Errors
    ///
    /// The writer thread cannot be started.
    pub fn keep(mut self, file: impl Keep) -> io::Result<Self> {
        self.writer = StateWriter::new(file)?;
        Ok(self)
    }

    /// Reports each exit and each drain that is over to `count`.
    #[must_use]
    pub fn count(mut self, count: impl FnMut(Counted) + Send + 'static) -> Self {
        self.count = Box::new(count);
        self
    }

    /// Restores the state of an earlier wrapper: its child, if that is running, and its pending callbacks.
    #[must_use]
    pub fn resume(
        mut self,
        supervision: Supervision,
        child: Option<P::Child>,
        pending: Vec<PendingCallback>,
    ) -> Self {
        self.identity = child.as_ref().and_then(|child| child.identity().ok());
        self.child = child;
        self.supervision = supervision;
        self.callbacks.resume(pending, self.supervision.state.due_callbacks());
        self.is_restored = true;
        self.publish();
        self
    }

    /// Runs until the child has ended for the wrapper's shutdown, or until the task is detached from it.
    ///
    /// Dropping this future does not stop the child.
    pub async fn run(mut self) -> Outcome {
        if self.is_restored {
            self.write_state().await;
        }
        loop {
            let (event, reply) = match self.wait().await {
                Wake::Event(event) => (event, None),
                Wake::Command(Command::Event(event, reply)) => (event, Some(reply)),
                Wake::Command(Command::Detach(reply)) => {
                    if self.writer.has_file() {
                        let _gone = reply.send(Ok(Answer::Done));
                        return Outcome::Detached;
                    }
                    let _gone = reply.send(Err(Refusal::NoStateFile));
                    continue;
                }
                Wake::Command(Command::Ping(reply)) => {
                    let _gone = reply.send(());
                    continue;
                }
                Wake::WriteState => {
                    self.write_state().await;
                    continue;
                }
                Wake::CheckStateFile => {
                    self.writer.check_file().await;
                    continue;
                }
            };
            debug!({ key::EVENT } = ?event, "processing event");
            let (leaves, answer) = self.handle(event).await;
            if let Some(reply) = reply {
                // The client may have disconnected.
                let _gone = reply.send(answer);
            }
            if leaves && let State::Exited { end, .. } = &self.supervision.state {
                let end = end.clone();
                self.finish_callbacks().await;
                self.leave_callbacks().await;
                return Outcome::Ended(end);
            }
        }
    }

    /// Waits until the callbacks are finished, for at most [`FINISH_LIMIT`]. Requests are rejected in that time.
    async fn finish_callbacks(&mut self) {
        let until = Instant::now() + FINISH_LIMIT;
        while !self.callbacks.pending().is_empty() {
            match timeout_at(until, self.commands.recv()).await {
                Ok(Some(Command::Event(event @ Event::CallbackFinished(_), _))) => {
                    let _no_reply = self.step(event).await;
                }
                Ok(Some(Command::Ping(reply))) => {
                    let _gone = reply.send(());
                }
                // A dropped request reports to its client that the supervisor has ended.
                Ok(Some(Command::Event(..) | Command::Detach(_))) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Keeps only the unfinished callbacks in the state file.
    async fn leave_callbacks(&mut self) {
        let count = self.callbacks.pending().len();
        if count == 0 {
            return std::mem::take(&mut self.writer).finish().await;
        }
        if self.writer.has_file() {
            warn!(
                { key::COUNT } = count,
                "exiting with unsent shutdown callbacks; the next wrapper sends them"
            );
            self.writer.save(Saved::new(&Supervision::default(), None, self.callbacks.pending())).await;
        } else {
            error!(
                { key::COUNT } = count,
                "exiting with unsent shutdown callbacks; they are lost, because there is no state file"
            );
        }
    }

    async fn wait(&mut self) -> Wake {
        // While leftover processes are being killed, the child has exited already.
        let is_ending = self.child.as_ref().is_some_and(Child::is_ending_leftovers);
        let due = self.supervision.due().filter(|_| !is_ending);
        let forceful = self.supervision.ends_leftovers(&self.policy);
        let probe = self.supervision.holds_signal().then(|| Instant::now() + PROBE_INTERVAL);
        tokio::select! {
            biased;
            // The exit comes first: no request and no timer may act on a child that has exited.
            exit = exited(self.child.as_mut(), forceful) => Wake::Event(Event::Exited(exit)),
            () = until(due) => Wake::Event(Event::Tick),
            // After every handle was dropped, there are no more requests. The child is still supervised.
            Some(command) = self.commands.recv() => Wake::Command(command),
            () = until(probe) => Wake::Event(Event::Tick),
            lines = read(self.reading.as_mut()) => {
                self.reading = None;
                Wake::Event(Event::LogRead(lines.into()))
            }
            () = until(self.writer.due()) => Wake::WriteState,
            () = self.writer.disturbed() => Wake::CheckStateFile,
        }
    }

    /// Handles one event, and the result of a spawn that follows from it. Returns whether the task is over, and the answer.
    async fn handle(&mut self, event: Event) -> (bool, Result<Answer, Refusal>) {
        let is_exit = matches!(event, Event::Exited(_));
        if is_exit {
            self.identity = None;
        }
        let (mut next, mut leaves, answer) = self.step(event).await;
        if is_exit && let Some(child) = self.child.take() {
            reap(child);
        }
        while let Some(event) = next {
            let (follows, leaves_now, _) = self.step(event).await;
            leaves |= leaves_now;
            next = follows;
        }
        (leaves, answer)
    }

    /// One transition. Its effects come before its state is published: a reader of `Draining` can rely on the signal.
    async fn step(&mut self, event: Event) -> (Option<Event>, bool, Result<Answer, Refusal>) {
        if let Event::CallbackFinished(callback) = &event {
            self.callbacks.finished(callback);
        }
        let may_signal = matches!(event, Event::Stop(_) | Event::Leave(_) | Event::Reload | Event::Tick);
        let handles_quit = may_signal && self.child.as_ref().is_some_and(Child::handles_quit);
        let before = std::mem::take(&mut self.supervision);
        let from = before.state.public();
        let context = Context::new(Instant::now(), &self.policy, handles_quit);
        let Step { next, effects, answer } = before.on(event, context);
        let to = next.state.public();
        if from != to {
            info!({ key::FROM } = from.name(), { key::TO } = to.name(), "runner state changed");
        }
        self.supervision = next;
        // The state is written before the effects, so that the next wrapper learns of every effect.
        self.write_state().await;
        let leaves = effects.contains(&Effect::Leave);
        // Only Spawn and ReadLog can lead to an event, and no step has both.
        let mut follows = None;
        for effect in effects {
            follows = self.perform(effect).await.or(follows);
        }
        self.publish();
        (follows, leaves, answer)
    }

    async fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Spawn => return Some(self.spawn().await),
            Effect::Signal(signal) => self.signal(signal).await,
            Effect::KillGroup => {
                if let Some(child) = &mut self.child
                    && let Err(error) = child.kill_group()
                {
                    error!(
                        { key::ERROR } = %error,
                        { key::PID } = child.pid(),
                        "cannot kill the runner's process group"
                    );
                }
                self.note_identity().await;
            }
            Effect::Callback(callback) => {
                self.callbacks.send(PendingCallback { callback, since: Instant::now() });
            }
            Effect::ReadLog { pid, started } => {
                self.reading = self.platform.last_lines(pid, started);
                return self.reading.is_none().then(|| Event::LogRead(Arc::default()));
            }
            Effect::Count(counted) => (self.count)(counted),
            Effect::Leave => {}
        }
        None
    }

    async fn spawn(&mut self) -> Event {
        // These lines are of an earlier child.
        self.reading = None;
        match self.try_spawn().await {
            Ok(pid) => {
                info!({ key::PID } = pid, "runner started");
                Event::Spawned(pid)
            }
            Err(error) => {
                error!({ key::ERROR } = %error, "cannot start the runner");
                Event::SpawnFailed(Arc::from(error.to_string()))
            }
        }
    }

    async fn try_spawn(&mut self) -> io::Result<u32> {
        let mut child = self.platform.spawn()?;
        self.identity = Some(child.identity()?);
        // The next wrapper must be able to find the child before it becomes a runner.
        if let Err(error) = self.writer.save_start(self.saved()).await {
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

    fn saved(&self) -> Saved {
        Saved::new(&self.supervision, self.identity.as_ref(), self.callbacks.pending())
    }

    async fn write_state(&mut self) {
        self.writer.save(self.saved()).await;
    }

    async fn signal(&mut self, signal: Signal) {
        let Some(child) = &mut self.child else { return };
        match child.signal(signal) {
            Ok(()) => info!(
                { key::SIGNAL } = %signal,
                { key::PID } = child.pid(),
                "signal sent to the runner"
            ),
            // The phase still moves on by time, up to SIGKILL.
            Err(error) => error!(
                { key::ERROR } = %error,
                { key::SIGNAL } = %signal,
                { key::PID } = child.pid(),
                "cannot send signal to the runner"
            ),
        }
        self.note_identity().await;
    }

    /// The next wrapper needs the child's processes, after they were searched for.
    async fn note_identity(&mut self) {
        let Some(now) = self.child.as_ref().and_then(|child| child.identity().ok()) else { return };
        if self.identity.as_ref().is_some_and(|identity| *identity != now) {
            self.identity = Some(now);
            self.write_state().await;
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

fn reap<C: Child>(child: C) {
    let (pid, was_forceful) = (child.pid(), child.is_ending_leftovers());
    let left = child.reap();
    // After a forceful end, those that could not be killed were reported then.
    if !was_forceful {
        report(pid, &left, false);
    }
}

/// Waits until the child has exited and, where no process of it may remain, until its other processes have.
async fn exited<C: Child>(child: Option<&mut C>, forceful: bool) -> Exit {
    match child {
        Some(child) => {
            let exit = child.ended().await;
            if forceful {
                report(child.pid(), &child.end_leftovers().await, true);
            }
            exit
        }
        None => std::future::pending().await,
    }
}

async fn read(reading: Option<&mut LastLines>) -> Vec<String> {
    match reading {
        Some(lines) => lines.await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
