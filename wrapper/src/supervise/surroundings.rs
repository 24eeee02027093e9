//! What the supervisor needs of the rest of the program, and the report that a callback is finished.

use tokio::sync::{mpsc, oneshot};

use super::{
    core::{Callback, EndedStop, Event, Stop},
    handle::Command,
    process::Exit,
};

/// What the supervisor needs of the rest of the program.
pub trait Surroundings: Send + 'static {
    /// Starts to send a callback, and returns at once.
    fn send(&mut self, callback: Callback, completion: Completion);

    /// Counts an exit, or a drain that is over.
    fn count(&mut self, stop: EndedStop);

    /// The child has exited, at the end of this stop or without one. Returns at once.
    fn exited(&mut self, exit: Exit, stop: Option<&Stop>);
}

/// For a supervisor without callbacks and metrics, as in tests.
impl Surroundings for () {
    fn send(&mut self, _: Callback, _: Completion) {}

    fn count(&mut self, _: EndedStop) {}

    fn exited(&mut self, _: Exit, _: Option<&Stop>) {}
}

/// Reports to the supervisor that a callback is finished.
#[derive(Debug)]
pub struct Completion {
    pub(super) callback: Callback,
    pub(super) commands: mpsc::WeakSender<Command>,
}

impl Completion {
    /// The callback has succeeded, or failed after all retries. The next wrapper does not send it again.
    pub async fn report(self) {
        let Some(commands) = self.commands.upgrade() else { return };
        let event = Event::CallbackFinished(self.callback);
        let _ended = commands.send(Command::Event(event, oneshot::channel().0)).await;
    }
}
