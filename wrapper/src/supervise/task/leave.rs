//! The end of the task: what the next wrapper finds.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

use super::{Owner, Task};
use crate::supervise::{
    core::{Callback, Event, StopId},
    handle::Command,
};

/// How long a wrapper that shuts down waits for callbacks: two attempts that time out, or half a minute of quick failures.
const CALLBACK_WAIT: Duration = Duration::from_secs(25);

impl<O: Owner> Task<O> {
    /// Waits until the callbacks are finished, for at most [`CALLBACK_WAIT`]. Requests are rejected in that time.
    pub(super) async fn finish_callbacks(&mut self) {
        let until = Instant::now() + CALLBACK_WAIT;
        while !self.unfinished_callbacks().is_empty() {
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

    pub(super) fn unfinished_callbacks(&self) -> Vec<Callback> {
        let past = self.supervision.last_stop.iter().flat_map(|past| &past.stop.callbacks);
        self.supervision.state.due_callbacks().iter().chain(past).cloned().collect()
    }

    /// Keeps in the state file what concerns the next wrapper: unfinished callbacks, and the drain that a client requested.
    pub(super) fn leave_record(&mut self) {
        let count = self.unfinished_callbacks().len();
        let drain = self.supervision.state.stop().filter(|stop| stop.id != StopId::Signal);
        let drain = drain.filter(|_| self.recorder.has_file());
        if count > 0 && self.recorder.has_file() {
            warn!(count, "exiting with unsent shutdown callbacks; the next wrapper sends them");
        } else if count > 0 {
            error!(
                count,
                "exiting with unsent shutdown callbacks; they are lost, because there is no state file"
            );
        }
        match drain {
            Some(drain) => info!(
                id = %drain.id,
                "exiting after a drain that a client requested; the next wrapper does not start the runner"
            ),
            None if count == 0 => return std::mem::take(&mut self.recorder).finish(),
            None => {}
        }
        self.save();
    }
}
