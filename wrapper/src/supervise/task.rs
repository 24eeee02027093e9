//! The task that has the owner of the child: it turns news of the child, requests and time into events, and performs the effects, one at a time.

mod effects;
mod leave;

use std::{collections::VecDeque, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

use super::{
    core::{
        Answer, ChildInfo, Context, Effect, End, Event, Mode, Moment, Observation, Policy, Refusal, State,
        Step, Supervision,
    },
    handle::{Command, Handle},
    journal::{Journal, LastError},
    owner::{Change, Owner},
    record::{RETRY_DELAY, Recorder, Saved, StateFile},
    surroundings::Surroundings,
};

/// The maximum number of waiting requests. The task needs microseconds for each.
const QUEUE_SIZE: usize = 64;

/// The supervisor. Nothing happens before [`Task::run`] is polled.
pub struct Task<O> {
    policy: Policy,
    owner: O,
    surroundings: Box<dyn Surroundings>,
    /// Where the child logs, if that can be read back.
    journal: Option<Journal>,
    supervision: Supervision,
    recorder: Recorder,
    /// When starts by others are prevented again, after a failure.
    hold_again: Option<Instant>,
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
    observer: Option<Observer>,
}

/// Is shown each transition.
pub type Observer = Box<dyn FnMut(&Event, &Step) + Send>;

/// The next thing to do.
enum Wake {
    /// There may be news of the child.
    Changed,
    Event(Event),
    Command(Command),
    Save,
}

impl<O: Owner> Task<O> {
    /// A supervisor of the child of this owner, and the handle to it.
    pub fn new(policy: Policy, owner: O, surroundings: impl Surroundings) -> (Self, Handle) {
        let (sender, commands) = mpsc::channel(QUEUE_SIZE);
        let (observe, observed) = watch::channel(None);
        let (report, requests) = watch::channel(None);
        let supervision = Supervision::default();
        let (published, receiver) = watch::channel(supervision.clone());
        let task = Self {
            policy,
            owner,
            surroundings: Box::new(surroundings),
            journal: None,
            supervision,
            recorder: Recorder::default(),
            hold_again: None,
            is_restored: false,
            reading: None,
            commands,
            sender: sender.downgrade(),
            observed,
            requests,
            published,
            observer: None,
        };
        (task, Handle { commands: sender, published: receiver, observed: observe, requests: report })
    }

    /// Writes the state to this file, for the next wrapper.
    #[must_use]
    pub fn save_to(mut self, file: impl StateFile) -> Self {
        self.recorder = Recorder::new(file);
        self
    }

    /// Shows each transition, with its event and its step, before its effects: to a simulation.
    #[must_use]
    pub(crate) fn show_steps(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Reads the log of a child that has exited from `journal`, if there is one.
    #[must_use]
    pub fn read_log(mut self, journal: Option<Journal>) -> Self {
        self.journal = journal;
        self
    }

    /// Restores the state of a previous wrapper, whose child the owner has, and its unfinished callbacks.
    #[must_use]
    pub fn resume(mut self, supervision: Supervision) -> Self {
        self.supervision = supervision;
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
                Wake::Changed => match self.news().await {
                    Ok(Some(event)) => (event, None),
                    Ok(None) => continue,
                    Err(error) => {
                        warn!(%error, "cannot read the state of the runner; retrying");
                        continue;
                    }
                },
                Wake::Event(event) => (event, None),
                Wake::Command(Command::Event(event, reply)) => (event, Some(reply)),
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
        tokio::select! {
            biased;
            // The exit comes first: no request and no timer may act on a child that has exited.
            () = self.owner.changed() => Wake::Changed,
            // A child that aborts its jobs gets neither SIGQUIT nor SIGTERM, also if both have waited while the owner did not respond.
            Some(event) = observation(&mut self.observed) => Wake::Event(event),
            () = or_pending(due.map(sleep_until)) => Wake::Event(Event::Tick),
            Some(event) = requests(&mut self.requests) => Wake::Event(event),
            // After every handle was dropped, there are no more requests. The child is still supervised.
            Some(command) = self.commands.recv() => Wake::Command(command),
            line = or_pending(self.reading.as_mut()) => {
                self.reading = None;
                line.map_or(Wake::Save, |line| Wake::Event(Event::LogRead(line)))
            }
            () = or_pending(self.recorder.due().into_iter().chain(self.hold_again).min().map(sleep_until)) => Wake::Save,
        }
    }

    /// Handles an event, and the events that its effects lead to. Returns the answer to it, and whether the task is over.
    ///
    /// The effects come before the state is published: a reader of `Draining` can rely on the signal. Only a start is published before, because it
    /// can take long: meanwhile the state before it, for example of a drained runner, must not be read.
    async fn handle(&mut self, event: Event) -> (Result<Answer, Refusal>, bool) {
        let mut answer = None;
        let mut leaves = false;
        let mut events = VecDeque::from([(event, true)]);
        while let Some((event, is_request)) = events.pop_front() {
            debug!(?event, "processing event");
            let step = self.step(event);
            if is_request {
                answer = Some(step.1);
            }
            for effect in step.0 {
                leaves |= effect == Effect::Leave;
                match effect {
                    // The request is answered after it is known whether a child is there.
                    Effect::Look(request) => match self.look(&request).await {
                        Ok(news) => events.extend(news),
                        Err(refusal) => answer = Some(Err(refusal)),
                    },
                    effect => {
                        let mut followed = VecDeque::new();
                        self.perform(effect, &mut followed).await;
                        events.extend(followed.into_iter().map(|event| (event, false)));
                    }
                }
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
        let shown = self.observer.is_some().then(|| event.clone());
        let step = before.on(event, Context::new(Moment::now(), &self.policy));
        if let (Some(observer), Some(event)) = (&mut self.observer, shown) {
            observer(&event, &step);
        }
        let Step { next, effects, answer } = step;
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

    /// Writes the state, and prevents or allows starts by others. What has failed is repeated later.
    fn save(&mut self) {
        if self.supervision.state.stop().is_some_and(|stop| stop.mode == Mode::Forceful) {
            self.owner.force();
        }
        let saved = self.recorder.save(self.saved());
        let held = self.owner.hold(self.supervision.is_held());
        self.hold_again = held.is_err().then(|| Instant::now() + RETRY_DELAY);
        let result = saved.and(held);
        let error = result.err().map(|error| Arc::from(error.to_string()));
        if self.supervision.save_error != error {
            self.note(Event::Saved(error));
        }
    }

    fn saved(&self) -> Saved {
        Saved::new(&self.supervision, self.owner.invocation())
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
