//! The task that has the child: it turns its exit, requests and time into events, and performs the effects, one at a time.

mod effects;
mod leave;

use std::{collections::VecDeque, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    time::sleep_until,
};
use tracing::{debug, info};

use super::{
    core::{
        Answer, ChildInfo, Context, Effect, End, Event, Moment, Observation, Policy, Refusal, State, Step,
        Supervision,
    },
    handle::{Command, Handle},
    journal::{Journal, LastError},
    process::{Child, Program, Spawner},
    record::{Found, Record, Recorder, Saved},
    surroundings::Surroundings,
};

/// The maximum number of waiting requests. The task needs microseconds for each.
const QUEUE_SIZE: usize = 64;

/// The supervisor. Nothing happens before [`Task::run`] is polled.
pub struct Task {
    policy: Policy,
    spawner: Spawner,
    surroundings: Box<dyn Surroundings>,
    /// Where the child logs, if that can be read back.
    journal: Option<Journal>,
    supervision: Supervision,
    child: Option<Child>,
    recorder: Recorder,
    /// The state of a previous wrapper was restored, and is written again first.
    is_restored: bool,
    /// The last error of a failed child, while the log is being read.
    reading: Option<LastError>,
    commands: mpsc::Receiver<Command>,
    /// For the reports of callbacks.
    sender: mpsc::WeakSender<Command>,
    observed: watch::Receiver<Option<(ChildInfo, Observation)>>,
    requests: watch::Receiver<Option<Event>>,
    published: watch::Sender<Supervision>,
}

/// The next thing to do.
enum Wake {
    /// The child has exited.
    Exited,
    Event(Event),
    Command(Command),
    Save,
}

impl Task {
    /// A supervisor without a child, and the handle to it.
    pub fn new(policy: Policy, spawner: Spawner, surroundings: impl Surroundings) -> (Self, Handle) {
        let (sender, commands) = mpsc::channel(QUEUE_SIZE);
        let (observe, observed) = watch::channel(None);
        let (report, requests) = watch::channel(None);
        let supervision = Supervision::default();
        let (published, receiver) = watch::channel(supervision.clone());
        let task = Self {
            policy,
            spawner,
            surroundings: Box::new(surroundings),
            journal: None,
            supervision,
            child: None,
            recorder: Recorder::default(),
            is_restored: false,
            reading: None,
            commands,
            sender: sender.downgrade(),
            observed,
            requests,
            published,
        };
        (task, Handle { commands: sender, published: receiver, observed: observe, requests: report })
    }

    /// Writes the state to this record, for the next wrapper.
    #[must_use]
    pub fn save_to(mut self, record: Record) -> Self {
        self.recorder = Recorder::new(record);
        self
    }

    /// Reads the log of a child that has exited from `journal`, if there is one.
    #[must_use]
    pub fn read_log(mut self, journal: Option<Journal>) -> Self {
        self.journal = journal;
        self
    }

    /// Restores the state of a previous wrapper: its child, if that is running, and its unfinished callbacks.
    #[must_use]
    pub fn resume(mut self, found: Found) -> Self {
        self.child = found.child;
        self.supervision = found.supervision;
        self.is_restored = true;
        self.publish();
        self
    }

    /// Runs until the child has ended for the wrapper's shutdown.
    ///
    /// Dropping this future does not stop the child.
    pub async fn run(mut self) -> End {
        if self.is_restored {
            self.save();
            for callback in self.unfinished_callbacks() {
                self.send(callback);
            }
        }
        loop {
            let (event, reply) = match self.wait().await {
                Wake::Exited => match self.exit().await {
                    Some(event) => (event, None),
                    None => continue,
                },
                Wake::Event(event) => (event, None),
                Wake::Command(Command::Event(event, reply)) => (event, Some(reply)),
                Wake::Command(Command::Pause(reply)) => {
                    self.pause(reply).await;
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
            let (answer, leaves) = self.handle(event).await;
            if let Some(reply) = reply {
                // The client may have disconnected.
                let _gone = reply.send(answer);
            }
            if leaves && let State::Exited { end, .. } = &self.supervision.state {
                let end = end.clone();
                self.finish_callbacks().await;
                self.leave_record();
                return end;
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let due = self.supervision.due();
        let exited = self.child.as_ref().map(Child::exited);
        tokio::select! {
            biased;
            // The exit comes first: no request and no timer may act on a child that has exited.
            () = or_pending(exited) => Wake::Exited,
            () = or_pending(due.map(sleep_until)) => Wake::Event(Event::Tick),
            // A child that aborts its jobs gets no SIGQUIT.
            Some(event) = observation(&mut self.observed) => Wake::Event(event),
            Some(event) = requests(&mut self.requests) => Wake::Event(event),
            // After every handle was dropped, there are no more requests. The child is still supervised.
            Some(command) = self.commands.recv() => Wake::Command(command),
            line = or_pending(self.reading.as_mut()) => {
                self.reading = None;
                line.map_or(Wake::Save, |line| Wake::Event(Event::LogRead(line)))
            }
            () = or_pending(self.recorder.due().map(sleep_until)) => Wake::Save,
        }
    }

    /// Handles an event, and the events that its effects lead to. Returns the answer to it, and whether the task is over.
    ///
    /// The effects come before the state is published: a reader of `Draining` can rely on the signal. Only a start is published before, because it
    /// can take long: meanwhile the state before it, for example of a drained runner, must not be read.
    async fn handle(&mut self, event: Event) -> (Result<Answer, Refusal>, bool) {
        let mut answer = None;
        let mut leaves = false;
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            debug!(?event, "processing event");
            let is_exit = matches!(event, Event::Exited(..));
            // The state is written before its effects, so that the next wrapper learns of every effect. But a gap between job requests can last for
            // milliseconds: without SIGQUIT in the state, the next wrapper waits for a gap again, and a second SIGQUIT has no effect.
            let is_gap = matches!(event, Event::JobRequests(..));
            let step = self.step(event);
            answer.get_or_insert(step.1);
            if !is_gap {
                self.save();
            }
            for effect in step.0 {
                leaves |= effect == Effect::Leave;
                self.perform(effect, &mut events).await;
            }
            if is_exit && let Some(child) = self.child.take() {
                child.reap(self.supervision.leftovers(&self.policy)).await;
            }
        }
        self.save();
        self.publish();
        (answer.unwrap_or(Ok(Answer::Done)), leaves)
    }

    /// One transition.
    fn step(&mut self, event: Event) -> (Vec<Effect>, Result<Answer, Refusal>) {
        let before = std::mem::take(&mut self.supervision);
        let from = before.state.public();
        let Step { next, effects, answer } = before.on(event, Context::new(Moment::now(), &self.policy));
        let to = next.state.public();
        if from != to {
            info!(from = from.name(), to = to.name(), "runner state changed");
        }
        self.supervision = next;
        (effects, answer)
    }

    /// An event without effects.
    fn note(&mut self, event: Event) {
        let _nothing = self.step(event);
    }

    /// A failed write is repeated later.
    fn save(&mut self) {
        let error = self.recorder.save(self.saved()).err().map(|error| Arc::from(error.to_string()));
        if self.supervision.save_error != error {
            self.note(Event::Saved(error));
        }
    }

    fn saved(&self) -> Saved {
        let waits = matches!(self.supervision.state, State::Starting { child: Some(_) });
        let barrier = self.child.as_ref().filter(|_| waits).and_then(|child| Program::of(child.pid()).ok());
        Saved::new(&self.supervision, self.child.as_ref().map(Child::origin), barrier)
    }

    fn publish(&self) {
        self.published.send_if_modified(|published| {
            let mut before = std::mem::replace(published, self.supervision.clone());
            // What a prober reported is no news to the others.
            before.observed = self.supervision.observed;
            before != self.supervision
        });
    }
}

/// The next observation of a probe; `None` if there will be none.
async fn observation(observed: &mut watch::Receiver<Option<(ChildInfo, Observation)>>) -> Option<Event> {
    observed.changed().await.ok()?;
    let (child, observation) = (*observed.borrow_and_update())?;
    Some(Event::Observed(child, observation))
}

/// The next report of job requests; `None` if there will be none.
async fn requests(reported: &mut watch::Receiver<Option<Event>>) -> Option<Event> {
    reported.changed().await.ok()?;
    reported.borrow_and_update().clone()
}

/// Waits for a future that may not exist: without one, it never returns.
async fn or_pending<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
