//! Retries of failed connections.

use std::time::Duration;

use crate::random::random;

/// The delay after the first failed attempt. It doubles after each further one, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// The number of attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Consecutive failed attempts before the operation fails; `None`: until its deadline.
    pub attempts: Option<u32>,
}

impl Retry {
    pub(super) fn exhausted(&self, failures: u32) -> bool {
        self.attempts.is_some_and(|attempts| failures >= attempts)
    }
}

/// Delays that double up to a limit. Each is shortened by up to 25 % at random, so that many managers behind one jump host do not retry at
/// the same time.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    pub(super) fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(LONGEST);
        delay.mul_f64(1.0 - 0.25 * random_fraction())
    }

    /// Called after a success.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
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
        let mut backoff = Backoff::default();
        for ceiling in [500, 1000, 2000, 4000, 8000, 10_000, 10_000] {
            let delay = backoff.delay().as_millis();
            assert!((ceiling * 3 / 4..=ceiling).contains(&delay), "{delay} ms, expected about {ceiling}");
        }
        backoff.reset();
        assert!(backoff.delay() <= Duration::from_millis(500));
    }
}
