//! One operation over one or many runner managers: wait until healthy, drain, look.
//!
//! What it is: the loops that decide when to ask again, when to give up and what was seen last. What it is not: it knows neither
//! Terraform nor SSH. A wrapper is the trait [`Wrapper`]; outcomes are values, and `explain` finds the words for them.
//!
//! Every wait ends at its deadline, at the stop token, or with an outcome. Nothing here undoes a shutdown that was asked for:
//! the runner goes on draining when the caller goes away, and the next call finds it draining.

mod backoff;
pub mod drain;
pub mod health;
mod many;
mod peers;
mod wrapper;

#[cfg(test)]
mod test_wrapper;

use std::time::Duration;

pub use many::{Outcomes, for_each};
pub use peers::{Admission, Drains, Guarded, Peer, Permit, TooFewPeers, UnderWay, Unfit, Unguarded};
pub use wrapper::{Fault, Wrapper};

use backoff::Backoff;
use tokio::time::Instant;

use crate::{client::Look, duration::human};

/// How often a wrapper that does not tell of changes is looked at.
///
/// Quick at first, because most waits are short; never slower than this, so that a change is seen after a fifth of a
/// second on average. A call over an open tunnel costs both ends less than a millisecond.
const POLL_FIRST: Duration = Duration::from_millis(100);
const POLL_SLOWEST: Duration = Duration::from_millis(400);

/// How often a long wait says in the log where it stands.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);

/// What to do about a connection that fails or is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Connection attempts in a row before giving up; `None`: until the operation's deadline.
    pub attempts: Option<u32>,
    /// Delay after the first failed attempt; it doubles with each further one.
    pub min_delay: Duration,
    /// The longest delay between two attempts.
    pub max_delay: Duration,
}

impl Retry {
    fn backoff(&self) -> Backoff {
        Backoff::new(self.min_delay, self.max_delay)
    }

    /// Whether `failures` failed attempts in a row are enough.
    fn exhausted(&self, failures: u32) -> bool {
        self.attempts.is_some_and(|attempts| failures >= attempts)
    }
}

/// Where the wrapper tells of changes, looking is only for what is missed when its stream breaks.
const POLL_WATCHED: Duration = Duration::from_secs(5);

/// The time to the next look, `waited` into a wait.
fn poll_interval(waited: Duration, last: Option<&Look>) -> Duration {
    if last.is_some_and(|look| look.detail.is_some()) {
        POLL_WATCHED
    } else {
        (waited / 20).clamp(POLL_FIRST, POLL_SLOWEST)
    }
}

/// Jobs left and the oldest job, as far as they are known: `12 jobs left, oldest 2h10m (step_script)`.
pub fn jobs_left(look: &Look) -> Option<String> {
    let detail = look.detail.as_deref()?;
    let jobs = detail.jobs?;
    let noun = if jobs == 1 { "job" } else { "jobs" };
    Some(match &detail.oldest_job {
        Some((age, stage)) if stage.is_empty() => format!("{jobs} {noun} left, oldest {}", human(*age)),
        Some((age, stage)) => format!("{jobs} {noun} left, oldest {} ({stage})", human(*age)),
        None => format!("{jobs} {noun} left"),
    })
}

/// Says when a progress line is due.
struct Progress {
    next: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { next: Instant::now() + PROGRESS_EVERY }
    }

    fn due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.next = now + PROGRESS_EVERY;
        true
    }
}
