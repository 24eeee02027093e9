//! Who makes the callbacks of a stop, and how the supervisor learns that they were made.

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::callback::Callback;
use super::command::{Command, Request};

/// Makes the callbacks. It must return at once, and make the request elsewhere.
pub trait Callbacks: Send + 'static {
    /// `since` is when the callback became due. `made` is to be told when it was made or given up.
    fn call(&mut self, callback: Callback, since: Instant, made: Made);
}

/// A callback that is being made. It stays in the state file until it was made or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed {
    pub callback: Callback,
    /// When it became due.
    pub since: Instant,
}

/// The way back to the supervisor for one callback.
#[derive(Debug)]
pub struct Made {
    callback: Callback,
    commands: mpsc::WeakSender<Command>,
}

impl Made {
    pub(super) fn new(callback: Callback, commands: mpsc::WeakSender<Command>) -> Self {
        Self { callback, commands }
    }

    /// The callback was made, or nothing more can be hoped for: it need not be made again by a later wrapper.
    pub async fn report(self) {
        let Some(commands) = self.commands.upgrade() else { return };
        let (reply, _nobody_waits) = oneshot::channel();
        let _ended = commands.send(Command { request: Request::Called(self.callback), reply }).await;
    }
}
