//! What may be asked of the supervisor, and what it answers.

use std::sync::Arc;

use thiserror::Error;
use tokio::{sync::oneshot, time::Instant};

use super::callback::Callback;
use super::drain_outcome::DrainOutcome;

/// One thing asked, with the way back for the answer.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Result<Answer, Refusal>>,
}

#[derive(Clone, Debug)]
pub(super) enum Request {
    /// Start the first child. Does nothing when anything was asked before, so that a stop that came first is kept.
    Boot,
    /// Start a child again after a stop.
    Start,
    Stop(Stop),
    /// Take a stop back whose signal was not sent yet: the one with this id, or any when it is empty.
    Cancel(Arc<str>),
    Reload,
    /// End the supervisor once the child has ended, and stop the child in this way.
    Leave(Stop),
    /// End the supervisor, and let the child live for the next wrapper to adopt.
    Detach,
    /// A callback was made, or given up.
    Called(Callback),
    /// Show that the supervisor works.
    Ping,
}

/// A wish that the child ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Who asks. The same id again is the same stop.
    pub id: Arc<str>,
    /// Why, for people.
    pub reason: Arc<str>,
    /// The user who asks and the transport, for people.
    pub by: Arc<str>,
    pub mode: Mode,
    pub asked: Instant,
    /// When a graceful stop turns into a forceful one; never by default, since a job may take days.
    pub deadline: Option<Instant>,
    /// Who is to be told afterwards. Kept apart by being equal or not: one that is asked twice is made once.
    pub callbacks: Vec<Callback>,
    /// Who was told, or could not be.
    pub called: Vec<Callback>,
    /// What it came to, once it is over.
    pub outcome: Option<DrainOutcome>,
}

impl Stop {
    /// At most this many different callbacks are kept for one child.
    pub const MAX_CALLBACKS: usize = 16;

    /// A stop that is asked now, without deadline or callbacks.
    #[must_use]
    pub fn new(id: &str, mode: Mode) -> Self {
        Self {
            id: Arc::from(id),
            reason: Arc::from(""),
            by: Arc::from(""),
            mode,
            asked: Instant::now(),
            deadline: None,
            callbacks: Vec::new(),
            called: Vec::new(),
            outcome: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Take no new jobs, finish those that run (SIGQUIT).
    Graceful,
    /// Abort the jobs (SIGTERM, and SIGKILL to the group when that takes too long).
    Forceful,
}

impl Mode {
    /// One word for logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Forceful => "forceful",
        }
    }
}

/// What became of a request that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It changes what happens.
    Done,
    /// It was so already.
    Already,
    /// The stop joined one that was under way already, which had this id.
    Joined(Arc<str>),
}

/// Why a request was not taken. Nothing has changed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    #[error("the runner is stopping; start it after it has exited")]
    Stopping,
    #[error("the wrapper is exiting")]
    Leaving,
    #[error("no drain is in progress")]
    NotStopping,
    #[error("another drain is in progress")]
    OtherStop,
    #[error(
        "SIGQUIT was already sent to the runner, so the drain cannot be cancelled; start the runner after \
         it has exited"
    )]
    TooLate,
    #[error("without --state-file the next wrapper cannot adopt the runner")]
    NoStateFile,
    #[error("too many different callbacks for one shutdown; the limit is {max}", max = Stop::MAX_CALLBACKS)]
    TooManyCallbacks,
}
