//! Requests to the supervisor, and its published state.

use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use super::core::{
    Answer, Cancel, ChildInfo, Event, Observation, Refusal, RequestsCancelled, RequestsRead, Stop,
    Supervision,
};

/// Where the answer to a request goes.
pub(super) type Reply = oneshot::Sender<Result<Answer, Refusal>>;

/// A message to the task of the supervisor.
#[derive(Debug)]
pub(super) enum Command {
    Event(Event, Reply),
    /// Show that the task works.
    Ping(oneshot::Sender<()>),
}

/// A connection to the task of the supervisor. Clones lead to the same task.
///
/// A request stays in the queue when the future of its call is dropped.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) published: watch::Receiver<Supervision>,
    pub(super) observed: watch::Sender<Option<(ChildInfo, Observation)>>,
    /// Of the job requests: only the latest report counts, and clients never wait for one.
    pub(super) requests: watch::Sender<Option<Event>>,
}

/// Why a request has no effect.
#[derive(Debug, Error)]
pub enum HandleError {
    #[error("too many requests are waiting; retry")]
    Busy,
    #[error("the wrapper is exiting")]
    Ended,
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Handle {
    /// The current state. After a call has returned, this is the state after the call, or a later one.
    pub fn now(&self) -> Supervision {
        self.published.borrow().clone()
    }

    /// A receiver of the current state and of every later one. A slow receiver misses all but the latest.
    pub fn watch(&self) -> watch::Receiver<Supervision> {
        self.published.clone()
    }

    /// Starts the first child, unless a stop came before.
    pub async fn boot(&self) -> Result<Answer, HandleError> {
        self.send(|reply| Command::Event(Event::Boot, reply)).await
    }

    /// Starts a child again after a stop.
    /// Rejected while a child is being stopped and while the wrapper is shutting down.
    pub async fn start(&self) -> Result<Answer, HandleError> {
        self.send(|reply| Command::Event(Event::Start, reply)).await
    }

    /// Requests a stop of the child, and returns when the stop is in progress. A second request joins the first.
    /// Rejected when there are too many callbacks.
    pub async fn stop(&self, stop: Stop) -> Result<Answer, HandleError> {
        self.send(|reply| Command::Event(Event::Stop(stop), reply)).await
    }

    /// Cancels a stop. Rejected after the signal was sent.
    pub async fn cancel(&self, request: Cancel) -> Result<Answer, HandleError> {
        self.send(|reply| Command::Event(Event::Cancel(request), reply)).await
    }

    /// Passes SIGHUP on to a running child.
    pub async fn reload(&self) -> Result<Answer, HandleError> {
        self.send(|reply| Command::Event(Event::Reload, reply)).await
    }

    /// Reports what the last probe of this child has shown.
    pub fn observe(&self, child: ChildInfo, observed: Observation) {
        let now = Some((child, observed));
        self.observed.send_if_modified(|before| std::mem::replace(before, now) != now);
    }

    /// Reports the open job requests of a child: see [`Phase::AwaitingGap`](super::core::Phase).
    pub fn job_requests(&self, child: ChildInfo, read: RequestsRead) {
        self.requests.send_replace(Some(Event::JobRequests(child, read)));
    }

    /// Reports the job requests that SIGQUIT has cancelled.
    pub fn cancelled_requests(&self, child: ChildInfo, cancelled: RequestsCancelled) {
        self.requests.send_replace(Some(Event::RequestsCancelled(child, cancelled)));
    }

    /// Stops the child, and then ends the supervisor's task.
    pub async fn leave(&self, stop: Stop) -> Result<Answer, HandleError> {
        self.send(|reply| Command::Event(Event::Leave(stop), reply)).await
    }

    /// Returns when the supervisor's task has answered. Waits while the queue is full.
    pub async fn ping(&self) -> Result<(), HandleError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Ping(reply)).await.map_err(|_| HandleError::Ended)?;
        answer.await.map_err(|_| HandleError::Ended)
    }

    async fn send(&self, command: impl FnOnce(Reply) -> Command) -> Result<Answer, HandleError> {
        let (reply, answer) = oneshot::channel();
        self.commands.try_send(command(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => HandleError::Busy,
            mpsc::error::TrySendError::Closed(_) => HandleError::Ended,
        })?;
        Ok(answer.await.map_err(|_| HandleError::Ended)??)
    }
}
