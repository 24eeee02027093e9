//! The callbacks of a stop that are being sent: the interface to their sender, and the report that one is finished.

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tracing::warn;

use super::{callback::Callback, event::Event, handle::Command};

/// The maximum number of callbacks in the state file.
const MAX_PENDING: usize = 64;

pub trait Callbacks: Send + 'static {
    /// Starts to send a callback, and returns at once. `since` is the instant at which it became due.
    fn send(&mut self, callback: Callback, since: Instant, completion: Completion);
}

/// A callback that is being sent. The state file has it until it has succeeded, or failed after all retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCallback {
    pub callback: Callback,
    /// When it became due.
    pub since: Instant,
}

/// Reports to the supervisor that a callback is finished.
#[derive(Debug)]
pub struct Completion {
    callback: Callback,
    commands: mpsc::WeakSender<Command>,
}

impl Completion {
    /// The callback has succeeded, or failed after all retries. The next wrapper does not send it again.
    pub async fn report(self) {
        let Some(commands) = self.commands.upgrade() else { return };
        let (reply, _ignored) = oneshot::channel();
        let event = Event::CallbackFinished(self.callback);
        let _ended = commands.send(Command::Event(event, reply)).await;
    }
}

/// The callbacks that are being sent.
#[derive(Debug)]
pub(super) struct CallbackQueue<C> {
    sender: C,
    pending: Vec<PendingCallback>,
    commands: mpsc::WeakSender<Command>,
}

impl<C: Callbacks> CallbackQueue<C> {
    pub(super) fn new(sender: C, commands: mpsc::WeakSender<Command>) -> Self {
        Self { sender, pending: Vec::new(), commands }
    }

    /// Sends the callbacks that an earlier wrapper had not finished, and those of its stop that were due and are not among them.
    pub(super) fn resume(&mut self, pending: Vec<PendingCallback>, due: Vec<Callback>) {
        let is_new = |callback: &Callback| pending.iter().all(|pending| pending.callback != *callback);
        let since = Instant::now();
        let new: Vec<_> =
            due.into_iter().filter(is_new).map(|callback| PendingCallback { callback, since }).collect();
        for callback in pending.into_iter().chain(new) {
            self.send(callback);
        }
    }

    pub(super) fn send(&mut self, pending: PendingCallback) {
        let completion = Completion { callback: pending.callback.clone(), commands: self.commands.clone() };
        self.sender.send(pending.callback.clone(), pending.since, completion);
        self.pending.push(pending);
        if self.pending.len() > MAX_PENDING {
            warn!("too many pending shutdown callbacks; removed the oldest callback from the state file");
            self.pending.remove(0);
        }
    }

    pub(super) fn finished(&mut self, callback: &Callback) {
        if let Some(at) = self.pending.iter().position(|pending| pending.callback == *callback) {
            self.pending.remove(at);
        }
    }

    pub(super) fn pending(&self) -> &[PendingCallback] {
        &self.pending
    }
}
