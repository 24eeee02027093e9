//! The task that has the child.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tracing::{debug, error, info, warn};

use super::{
    callback_queue::{CallbackQueue, Callbacks, PendingCallback},
    clock::Clocks,
    end::End,
    event::{Answer, Context, Effect, Event, Refusal},
    handle::{Command, Handle},
    journal::{Journal, LastLines},
    observation::Observation,
    observer::Observer,
    policy::Policy,
    process::{Child, Exit, Identity, Signal, Spawner},
    record::{Found, Record, Recorder, Saved},
    state::{ChildInfo, State, Supervision},
    statistics::Counted,
    stop::StopId,
    table::Step,
};
use crate::supervise::log_key as key;

/// The maximum number of waiting requests. The task needs microseconds for each.
const QUEUE_SIZE: usize = 64;

/// The interval at which the task checks whether the child handles a signal that is held back.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// How long a wrapper that shuts down waits for callbacks: two attempts that time out, or half a minute of quick failures.
const CALLBACK_WAIT: Duration = Duration::from_secs(25);

/// How the supervisor's task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ended(End),
    /// The child is running, and the next wrapper adopts it.
    Detached,
}

/// The supervisor. Nothing happens before [`Task::run`] is polled.
pub struct Task<C> {
    policy: Policy,
    spawner: Spawner,
    callbacks: CallbackQueue<C>,
    count: Box<dyn FnMut(Counted) + Send>,
    observer: Observer,
    supervision: Supervision,
    child: Option<Child>,
    recorder: Recorder,
    /// The state of an earlier wrapper was restored, and is written again first.
    is_restored: bool,
    /// The identity of the child, for the state file.
    identity: Option<Identity>,
    /// The last log lines of a failed child, while they are being read.
    reading: Option<LastLines>,
    commands: mpsc::Receiver<Command>,
    published: watch::Sender<Supervision>,
}

/// The result of one transition.
struct Handled {
    answer: Result<Answer, Refusal>,
    /// The task is over.
    leaves: bool,
    /// The event that an effect has led to.
    follow_up: Option<Event>,
}

/// The next thing to do.
enum Wake {
    /// The child has exited.
    Exited,
    Event(Event),
    Command(Command),
    Save,
}

impl<C: Callbacks> Task<C> {
    /// A supervisor without a child, and the handle to it.
    pub fn new(policy: Policy, spawner: Spawner, callbacks: C) -> (Self, Handle) {
        let (sender, commands) = mpsc::channel(QUEUE_SIZE);
        let supervision = Supervision::default();
        let (published, receiver) = watch::channel(supervision.clone());
        let task = Self {
            policy,
            spawner,
            callbacks: CallbackQueue::new(callbacks, sender.downgrade()),
            count: Box::new(|_| {}),
            observer: Observer::default(),
            supervision,
            child: None,
            recorder: Recorder::default(),
            is_restored: false,
            identity: None,
            reading: None,
            commands,
            published,
        };
        (task, Handle { commands: sender, published: receiver })
    }

    /// Writes the state to this record, for the next wrapper.
    #[must_use]
    pub fn save_to(mut self, record: Record) -> Self {
        self.recorder = Recorder::new(record);
        self
    }

    /// Reports each exit and each drain that is over to `count`.
    #[must_use]
    pub fn count(mut self, count: impl FnMut(Counted) + Send + 'static) -> Self {
        self.count = Box::new(count);
        self
    }

    /// Reads from `observe` what other parts of the program know about the child.
    #[must_use]
    pub fn observe(mut self, observe: impl Fn(ChildInfo) -> Observation + Send + 'static) -> Self {
        self.observer.observe = Box::new(observe);
        self
    }

    /// Reads the log of a child that has exited from `journal`, if there is one.
    #[must_use]
    pub fn read_log(mut self, journal: Option<Journal>) -> Self {
        self.observer.journal = journal;
        self
    }

    /// Restores the state of an earlier wrapper: its child, if that is running, and its pending callbacks.
    #[must_use]
    pub fn resume(mut self, found: Found) -> Self {
        self.identity = found.child.as_ref().map(|child| child.identity().clone());
        self.child = found.child;
        self.supervision = found.supervision;
        self.callbacks.resume(found.pending, self.supervision.state.due_callbacks());
        self.is_restored = true;
        self.publish();
        self
    }

    /// Runs until the child has ended for the wrapper's shutdown, or until the task is detached from it.
    ///
    /// Dropping this future does not stop the child.
    pub async fn run(mut self) -> Outcome {
        if self.is_restored {
            self.save();
        }
        loop {
            let (event, reply) = match self.wait().await {
                Wake::Exited => match self.exit().await {
                    Some(exit) => (Event::Exited(exit), None),
                    None => continue,
                },
                Wake::Event(event) => (event, None),
                Wake::Command(Command::Event(event, reply)) => (event, Some(reply)),
                Wake::Command(Command::Detach(reply)) => {
                    let ready = self.prepare_detach();
                    let is_ready = ready.is_ok();
                    let _gone = reply.send(ready.map(|()| Answer::Done));
                    if is_ready {
                        return Outcome::Detached;
                    }
                    continue;
                }
                Wake::Command(Command::Ping(reply)) => {
                    let _gone = reply.send(());
                    continue;
                }
                Wake::Save => {
                    self.save();
                    self.publish();
                    continue;
                }
            };
            debug!({ key::EVENT } = ?event, "processing event");
            let mut handled = self.handle(event).await;
            while let Some(event) = handled.follow_up.take() {
                let next = self.handle(event).await;
                handled.leaves |= next.leaves;
                handled.follow_up = next.follow_up;
            }
            if let Some(reply) = reply {
                // The client may have disconnected.
                let _gone = reply.send(handled.answer);
            }
            if handled.leaves
                && let State::Exited { end, .. } = &self.supervision.state
            {
                let end = end.clone();
                self.finish_callbacks().await;
                self.leave_state();
                return Outcome::Ended(end);
            }
        }
    }

    /// Waits until the callbacks are finished, for at most [`CALLBACK_WAIT`]. Requests are rejected in that time.
    async fn finish_callbacks(&mut self) {
        let until = Instant::now() + CALLBACK_WAIT;
        while !self.callbacks.pending().is_empty() {
            match timeout_at(until, self.commands.recv()).await {
                Ok(Some(Command::Event(event @ Event::CallbackFinished(_), _))) => {
                    let _no_reply = self.handle(event).await;
                }
                Ok(Some(Command::Ping(reply))) => {
                    let _gone = reply.send(());
                }
                // A dropped request reports to its client that the supervisor has ended.
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Keeps in the state file what concerns the next wrapper: unfinished callbacks, and the drain that a client requested.
    fn leave_state(&mut self) {
        let count = self.callbacks.pending().len();
        let drain = self.supervision.state.stop().filter(|stop| stop.id != StopId::Signal);
        let drain = drain.filter(|_| self.recorder.has_file());
        if count == 0 && drain.is_none() {
            return std::mem::take(&mut self.recorder).finish();
        }
        if count > 0 && self.recorder.has_file() {
            warn!(
                { key::COUNT } = count,
                "exiting with unsent shutdown callbacks; the next wrapper sends them"
            );
        } else if count > 0 {
            error!(
                { key::COUNT } = count,
                "exiting with unsent shutdown callbacks; they are lost, because there is no state file"
            );
        }
        match drain {
            Some(drain) => info!(
                { key::ID } = %drain.id,
                "exiting after a drain that a client requested; the next wrapper starts no runner"
            ),
            None => self.supervision = Supervision::default(),
        }
        self.save();
    }

    async fn wait(&mut self) -> Wake {
        let due = self.supervision.due();
        let exited = self.child.as_ref().map(Child::exited);
        let probe = self.supervision.holds_signal().then(|| Instant::now() + PROBE_INTERVAL);
        tokio::select! {
            biased;
            // The exit comes first: no request and no timer may act on a child that has exited.
            () = or_pending(exited) => Wake::Exited,
            () = or_pending(due.map(sleep_until)) => Wake::Event(Event::Tick),
            // After every handle was dropped, there are no more requests. The child is still supervised.
            Some(command) = self.commands.recv() => Wake::Command(command),
            () = or_pending(probe.map(sleep_until)) => Wake::Event(Event::Tick),
            lines = or_pending(self.reading.as_mut()) => {
                self.reading = None;
                Wake::Event(Event::LogRead(lines.into()))
            }
            () = or_pending(self.recorder.due().map(sleep_until)) => Wake::Save,
        }
    }

    /// The exit of the child that has exited. Requests and timers wait meanwhile, for seconds, because they could act on a child that no longer exists.
    async fn exit(&mut self) -> Option<Exit> {
        let leftovers = self.supervision.leftovers(&self.policy);
        let child = self.child.as_mut()?;
        let exit = child.exit(leftovers).await;
        self.observer.exited(&self.supervision.state, exit).await;
        Some(exit)
    }

    /// One transition. Its effects come before its state is published: a reader of `Draining` can rely on the signal. Only a start is published
    /// before.
    async fn handle(&mut self, event: Event) -> Handled {
        let is_exit = matches!(event, Event::Exited(_));
        let is_gap = matches!(event, Event::JobRequests(..));
        match &event {
            Event::Exited(_) => self.identity = None,
            Event::CallbackFinished(callback) => self.callbacks.finished(callback),
            _ => {}
        }
        let may_signal = matches!(event, Event::Stop(_) | Event::Leave(_) | Event::Reload | Event::Tick);
        let handles_quit = may_signal && self.child.as_ref().is_some_and(Child::handles_quit);
        let before = std::mem::take(&mut self.supervision);
        let from = before.state.public();
        let mut context = Context::new(Instant::now(), &self.policy, handles_quit);
        context.observation = self.observer.observation(&before.state);
        let Step { next, effects, answer } = before.on(event, context);
        let to = next.state.public();
        if from != to {
            info!({ key::FROM } = from.name(), { key::TO } = to.name(), "runner state changed");
        }
        let begins_wait = next.awaits_gap() && !is_gap;
        self.supervision = next;
        // The state is written before the effects, so that the next wrapper learns of every effect. But a gap between job requests can last for
        // milliseconds: without this signal in the state, the next wrapper waits for a gap again, and a second SIGQUIT has no effect.
        if !is_gap {
            self.save();
        }
        let leaves = effects.contains(&Effect::Leave);
        // A start can take long. Meanwhile the state before it must not be read: a drained runner, for example.
        if effects.contains(&Effect::Spawn) {
            self.publish();
        }
        // Spawn, Signal and ReadLog can lead to an event. Only after an exit does a transition have two of them, and a refused signal no longer matters.
        let mut follow_up = None;
        for effect in effects {
            follow_up = self.perform(effect).await.or(follow_up);
        }
        if is_gap {
            self.save();
        }
        if begins_wait && let Some(child) = &mut self.child {
            child.prepare_quit().await;
        }
        // The next transition publishes its state.
        if follow_up.is_none() {
            self.publish();
        }
        if is_exit && let Some(child) = self.child.take() {
            child.reap().await;
        }
        Handled { answer, leaves, follow_up }
    }

    async fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Spawn => return Some(self.spawn().await),
            Effect::Signal(signal) => {
                let child = self.child.as_mut()?;
                let pid = child.pid();
                let sent = child.signal(signal).await;
                self.note_identity();
                match sent {
                    // SIGKILL for the processes that the runner left.
                    Ok(()) if self.supervision.state.child().is_none() => {}
                    Ok(()) => {
                        info!({ key::SIGNAL } = %signal, { key::PID } = pid, "signal sent to the runner");
                        if signal == Signal::Drain
                            && let Some(open @ 1..) =
                                self.supervision.state.stop().and_then(|stop| stop.open_requests)
                        {
                            warn!(
                                { key::PID } = pid,
                                { key::OPEN_REQUESTS } = open,
                                "the runner cancels its open job requests; a job that GitLab has assigned to one of them is lost"
                            );
                        }
                        let shutdown_timeout =
                            self.observer.observation(&self.supervision.state).shutdown_timeout;
                        let timeout = self.policy.termination_timeout(shutdown_timeout);
                        self.supervision.state.signalled(signal, Instant::now(), timeout);
                    }
                    Err(error) => {
                        error!(
                            { key::ERROR } = %error, { key::SIGNAL } = %signal, { key::PID } = pid,
                            "cannot send signal to the runner"
                        );
                        return Some(Event::SignalRefused(signal, Arc::from(error.to_string())));
                    }
                }
            }
            Effect::Callback(callback) => {
                self.callbacks.send(PendingCallback { callback, since: Instant::now() });
            }
            Effect::ReadLog { pid, started } => {
                self.reading = self.observer.journal.as_ref().map(|journal| journal.last_lines(pid, started));
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
        let mut child = self.spawner.spawn().await?;
        self.identity = Some(child.identity().clone());
        // The next wrapper must be able to find the child before it becomes a runner.
        self.save();
        child.release().await.inspect_err(|_| self.identity = None)?;
        let pid = child.pid();
        self.child = Some(child);
        Ok(pid)
    }

    /// Whether this wrapper can exit and leave the runner to another one.
    fn may_detach(&self) -> Result<(), Refusal> {
        // A stopping service starts no next wrapper, and the end of this one would be the end of the stop.
        if self.supervision.leaving {
            return Err(Refusal::Leaving);
        }
        if std::process::id() == 1 {
            return Err(Refusal::FirstProcess);
        }
        if !self.recorder.has_file() {
            return Err(Refusal::NoStateFile);
        }
        Ok(())
    }

    /// Ensures that the state file is up to date: the next wrapper reads nothing else.
    fn prepare_detach(&mut self) -> Result<(), Refusal> {
        self.may_detach()?;
        self.recorder.save(self.saved()).map_err(|_| Refusal::StateNotSaved)
    }

    /// A failed write is repeated later.
    fn save(&mut self) {
        let saved = self.recorder.save(self.saved());
        self.supervision.save_error = saved.err().map(|error| Arc::from(error.to_string()));
    }

    fn saved(&self) -> Saved {
        let (child, pending) = (self.identity.as_ref(), self.callbacks.pending());
        Saved::new(&Clocks::now(), Instant::now(), &self.supervision, child, pending)
    }

    /// The next wrapper needs the child's processes, after they were searched for.
    fn note_identity(&mut self) {
        let Some(now) = self.child.as_ref().map(Child::identity) else { return };
        if self.identity.as_ref().is_some_and(|identity| identity != now) {
            self.identity = Some(now.clone());
            self.save();
        }
    }

    fn publish(&self) {
        self.published.send_if_modified(|published| {
            std::mem::replace(published, self.supervision.clone()) != self.supervision
        });
    }
}

/// Waits for a future that may not exist: without one, it never returns.
async fn or_pending<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
