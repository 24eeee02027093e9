//! What to do about a connection that fails or is lost.

use std::time::Duration;

/// How often, and how soon, a failed connection is tried again.
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
    pub(super) fn backoff(&self) -> Backoff {
        Backoff::new(self.min_delay, self.max_delay)
    }

    /// Whether `failures` failed attempts in a row are enough.
    pub(super) fn exhausted(&self, failures: u32) -> bool {
        self.attempts.is_some_and(|attempts| failures >= attempts)
    }
}

/// Delays that double up to a limit, each shortened by up to a quarter at random, so that hundreds of managers behind one
/// bastion do not come back in step.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    next: Duration,
    first: Duration,
    limit: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, limit: Duration) -> Self {
        Self { next: first, first, limit: limit.max(first) }
    }

    /// The delay before the next try.
    pub(super) fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(self.limit);
        delay.mul_f64(1.0 - 0.25 * random_fraction())
    }

    /// After a success: the next loss starts small again.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A number from 0 to 1 out of a random UUID: jitter needs no better source, and no further dependency.
fn random_fraction() -> f64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    // The top 48 bits of a version 4 UUID are all random.
    (high >> 16) as f64 / (1_u64 << 48) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_limit_and_resets() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(2));
        for ceiling in [500, 1000, 2000, 2000] {
            let delay = backoff.delay().as_millis();
            assert!((ceiling * 3 / 4..=ceiling).contains(&delay), "{delay} ms, expected about {ceiling}");
        }
        backoff.reset();
        assert!(backoff.delay() <= Duration::from_millis(500));
    }
}
