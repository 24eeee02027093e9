//! Who makes the callbacks of a stop, and how the supervisor learns that they were made.

use tokio::sync::{mpsc, oneshot};

use super::command::{Command, Request};
use crate::callback::Callback;

/// Makes the callbacks. It must return at once, and make the request elsewhere.
pub trait Callbacks: Send + 'static {
    /// `made` is to be told when the callback was made or given up.
    fn call(&mut self, callback: Callback, made: Made);
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

    /// One whose supervisor has ended.
    #[cfg(test)]
    pub(crate) fn to_nobody(callback: Callback) -> Self {
        Self { callback, commands: mpsc::channel(1).0.downgrade() }
    }

    /// The callback was made, or nothing more can be hoped for: it need not be made again by a later wrapper.
    pub async fn report(self) {
        let Some(commands) = self.commands.upgrade() else { return };
        let (reply, _nobody_waits) = oneshot::channel();
        let _ended = commands.send(Command { request: Request::Called(self.callback), reply }).await;
    }
}
