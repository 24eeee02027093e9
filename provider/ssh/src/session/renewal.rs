//! Another login after a refused socket.
//!
//! sshd opens a socket with the groups that the user had at the login. On a host that boots, the user is often added to the group of the
//! socket later, and a session from before then is refused until it ends.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::TransportError;

/// The shortest time between two logins: each one costs the host 30 ms of CPU time.
const LOGIN_INTERVAL: Duration = Duration::from_secs(5);

/// Whether, and when, another session replaces this one.
#[derive(Debug)]
pub(crate) struct Renewal(Mutex<State>);

#[derive(Debug)]
struct State {
    requested: bool,
    /// `None`: never.
    not_before: Option<Instant>,
}

impl Default for Renewal {
    /// Of a session that was just established.
    fn default() -> Self {
        Self(Mutex::new(State { requested: false, not_before: Some(Instant::now() + LOGIN_INTERVAL) }))
    }
}

impl Renewal {
    /// The server refused a channel to a unix socket.
    pub(super) fn request(&self) {
        self.0.lock().requested = true;
    }

    /// Whether the next caller logs in again.
    pub(crate) fn is_due(&self) -> bool {
        let state = self.0.lock();
        state.requested && state.not_before.is_some_and(|time| time <= Instant::now())
    }

    /// The session stays in use, because the new login failed. A refused login is not repeated: its certificate may have expired.
    pub(crate) fn failed(&self, error: &TransportError) {
        let not_before = error.retryable().then(|| Instant::now() + LOGIN_INTERVAL);
        *self.0.lock() = State { requested: false, not_before };
    }
}
