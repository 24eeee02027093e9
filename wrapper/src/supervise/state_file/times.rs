//! Times in the state file.
//!
//! They are kept by the wall clock, and beside them is how that stood to the monotonic one. Whoever reads them in the same boot finds
//! the very moments again, even if the wall clock was set since. The monotonic clock is the one that the wrapper waits by, so a successor
//! keeps a deadline as its predecessor would have: a machine that is asleep lets none of it pass. After a reboot only the wall clock is left.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::supervise::{clock::Clocks, process};

/// How the clocks of a wrapper stood to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedClock {
    /// The boot that the monotonic clock counts from.
    boot: String,
    /// How far the wall clock is ahead of that, in milliseconds.
    ahead: i64,
}

impl SavedClock {
    /// `None` where the system does not tell its boots apart.
    pub(super) fn new(clocks: &Clocks) -> Option<Self> {
        Some(Self { boot: process::boot_id().ok()?, ahead: clocks.ahead() })
    }
}

/// A moment as it is kept: in milliseconds since 1970, by this wall clock.
pub(super) fn millis(clocks: &Clocks, moment: Instant) -> u64 {
    let since = clocks.time(moment).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The way back to the moments of a file.
#[derive(Debug)]
pub(super) struct Times {
    clocks: Clocks,
    /// How much the wall clock was set forward since the file was written, in milliseconds.
    set: i64,
    /// The moment at which the file is read.
    pub(super) now: Instant,
}

impl Times {
    /// For times that were kept by the wall clock of `saved`.
    pub(super) fn new(saved: Option<&SavedClock>, clocks: Clocks, read: Instant) -> Self {
        let set = match (saved, SavedClock::new(&clocks)) {
            (Some(then), Some(now)) if then.boot == now.boot => now.ahead.saturating_sub(then.ahead),
            _ => 0,
        };
        Self { clocks, set, now: read }
    }

    pub(super) fn moment(&self, millis: u64) -> Instant {
        let millis = millis.saturating_add_signed(self.set);
        // Whatever is written there: one that the clock cannot hold becomes now.
        match SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)) {
            Some(time) => self.clocks.moment(time),
            None => self.now,
        }
    }

    /// The moment of something that has happened, which is not to come, whatever the clocks say.
    pub(super) fn past(&self, millis: u64) -> Instant {
        self.moment(millis).min(self.now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn apart(one: Instant, other: Instant) -> Duration {
        one.max(other) - one.min(other)
    }

    const LITTLE: Duration = Duration::from_millis(2);
    const HOUR: Duration = Duration::from_secs(3600);

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Written by one wall clock and read by another one, in the same boot.
        #[test]
        fn clock_change_moves_no_saved_instant(ahead: i32, before in 0..400_000_000_i64, after in -400_000_000..400_000_000_i64) {
            let then = Clocks::now().set_by(before);
            let distance = Duration::from_millis(ahead.unsigned_abs().into());
            let moment = if ahead < 0 { Instant::now() - distance } else { Instant::now() + distance };
            let (saved, kept) = (SavedClock::new(&then), millis(&then, moment));
            let text = serde_json::to_string(&saved).unwrap();
            let saved: Option<SavedClock> = serde_json::from_str(&text).unwrap();
            let times = Times::new(saved.as_ref(), then.set_by(after), Instant::now());
            assert!(apart(times.moment(kept), moment) <= LITTLE);
            assert!(times.past(kept) <= Instant::now());
        }

        /// No number in a file makes a wrapper fail.
        #[test]
        fn any_saved_clock_is_accepted(kept: u64, ahead: i64) {
            let clocks = Clocks::now();
            let saved = SavedClock { ahead, ..SavedClock::new(&clocks).unwrap() };
            let times = Times::new(Some(&saved), clocks, Instant::now());
            assert!(times.past(kept) <= Instant::now());
        }
    }

    #[test]
    fn wall_clock_is_used_after_reboot_or_without_clock() {
        let clocks = Clocks::now();
        let kept = millis(&clocks, Instant::now() + HOUR);
        let other = SavedClock { boot: "another".to_owned(), ahead: 0 };
        for saved in [None, Some(&other)] {
            let left = Times::new(saved, clocks, Instant::now()).moment(kept) - Instant::now();
            assert!(left <= HOUR && left > HOUR - HOUR / 60, "{left:?}");
        }
    }
}
