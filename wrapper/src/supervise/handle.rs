//! How the rest of the program talks to the supervisor.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    command::{Answer, Command, Refusal, Request, Stop},
    state::Supervision,
};

/// A way to the supervisor's task; clones lead to the same one.
///
/// Dropping the future of a call does not take the request back: it was in the queue already.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) published: watch::Receiver<Supervision>,
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
    /// What is true now. After a call has returned, this shows what the call led to, or something later.
    #[must_use]
    pub fn now(&self) -> Supervision {
        self.published.borrow().clone()
    }

    /// A receiver that sees the present state at once and every later one, or the latest where it is slow.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Supervision> {
        self.published.clone()
    }

    /// Starts the first child, unless a stop came before.
    ///
    /// # Errors
    ///
    /// [`HandleError`], as with every call here.
    pub async fn boot(&self) -> Result<Answer, HandleError> {
        self.ask(Request::Boot).await
    }

    /// Starts a child again after a stop.
    ///
    /// # Errors
    ///
    /// Refused while a child is being stopped and when the wrapper is ending.
    pub async fn start(&self) -> Result<Answer, HandleError> {
        self.ask(Request::Start).await
    }

    /// Asks the child to end; returns when that is under way, not when it has ended. Asking again joins.
    ///
    /// # Errors
    ///
    /// Refused when there are too many callbacks.
    pub async fn stop(&self, stop: Stop) -> Result<Answer, HandleError> {
        self.ask(Request::Stop(stop)).await
    }

    /// Takes a stop back: the one with this id, or any when it is empty.
    ///
    /// # Errors
    ///
    /// Refused when the child was signalled already.
    pub async fn cancel(&self, id: &str) -> Result<Answer, HandleError> {
        self.ask(Request::Cancel(Arc::from(id))).await
    }

    /// Passes SIGHUP on to a running child.
    ///
    /// # Errors
    ///
    /// [`HandleError::Busy`] or [`HandleError::Ended`].
    pub async fn reload(&self) -> Result<Answer, HandleError> {
        self.ask(Request::Reload).await
    }

    /// Stops the child, after which the supervisor's task ends.
    ///
    /// # Errors
    ///
    /// As [`Handle::stop`].
    pub async fn leave(&self, stop: Stop) -> Result<Answer, HandleError> {
        self.ask(Request::Leave(stop)).await
    }

    /// Ends the supervisor's task and lets the child live, for the next wrapper to adopt.
    ///
    /// # Errors
    ///
    /// Refused without a state file.
    pub async fn detach(&self) -> Result<Answer, HandleError> {
        self.ask(Request::Detach).await
    }

    /// Returns when the supervisor has answered, which shows that it works. Waits for its turn when other requests wait.
    ///
    /// # Errors
    ///
    /// [`HandleError::Ended`].
    pub async fn ping(&self) -> Result<(), HandleError> {
        let (reply, answer) = oneshot::channel();
        let command = Command { request: Request::Ping, reply };
        self.commands.send(command).await.map_err(|_| HandleError::Ended)?;
        answer.await.map_err(|_| HandleError::Ended)??;
        Ok(())
    }

    async fn ask(&self, request: Request) -> Result<Answer, HandleError> {
        let (reply, answer) = oneshot::channel();
        self.commands.try_send(Command { request, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => HandleError::Busy,
            mpsc::error::TrySendError::Closed(_) => HandleError::Ended,
        })?;
        Ok(answer.await.map_err(|_| HandleError::Ended)??)
    }
}
