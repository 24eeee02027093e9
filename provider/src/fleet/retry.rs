//! Retries of failed connections.

use std::time::Duration;

use crate::random::random;

/// The number of attempts, and the delays between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Consecutive failed attempts before the operation fails; `None`: until its deadline.
    pub attempts: Option<u32>,
    /// The delay after the first failed attempt. It doubles after each further one, up to `max_delay`.
    pub min_delay: Duration,
    pub max_delay: Duration,
}

impl Retry {
    pub(crate) fn new(attempts: Option<u32>) -> Self {
        Self { attempts, min_delay: Duration::from_millis(500), max_delay: Duration::from_secs(10) }
    }

    pub(super) fn backoff(&self) -> Backoff {
        Backoff::new(self.min_delay, self.max_delay)
    }

    pub(super) fn exhausted(&self, failures: u32) -> bool {
        self.attempts.is_some_and(|attempts| failures >= attempts)
    }
}

/// Delays that double up to a limit. Each is shortened by up to 25 % at random, so that many managers behind one jump host do not retry at
/// the same time.
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

    pub(super) fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(self.limit);
        delay.mul_f64(1.0 - 0.25 * random_fraction())
    }

    /// Called after a success.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A random number from 0 to 1.
fn random_fraction() -> f64 {
    // The top 48 bits of a version 4 UUID are all random.
    (random() >> 16) as f64 / (1_u64 << 48) as f64
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
