//! Times in the state file.
//!
//! They are stored as wall clock times, together with the offset of the wall clock to the monotonic clock. A wrapper that reads them in
//! the same boot gets the same instants, even after a change of the wall clock. The wrapper's timers use the monotonic clock, so the next
//! wrapper keeps a deadline exactly; time during a suspend of the host does not count. After a reboot only the wall clock can be used.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::supervise::{clock::Clocks, process};

/// The offset of the two clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedClock {
    /// Boot id of the monotonic clock.
    boot: String,
    /// Offset of the wall clock to the monotonic clock, in milliseconds.
    ahead: i64,
}

impl SavedClock {
    /// `None` if the system has no boot id.
    pub(super) fn new(clocks: &Clocks) -> Option<Self> {
        Some(Self { boot: process::boot_id().ok()?, ahead: clocks.ahead() })
    }
}

/// An instant as stored: Unix milliseconds of this wall clock.
pub(super) fn millis(clocks: &Clocks, moment: Instant) -> u64 {
    wall_millis(clocks.time(moment))
}

/// Unix milliseconds of a wall clock time, which a change of the wall clock does not move.
pub(super) fn wall_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The inverse of [`wall_millis`]. `None` for a value that the clock cannot represent.
pub(super) fn wall(millis: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// Converts stored times back to instants.
#[derive(Debug)]
pub(super) struct Times {
    clocks: Clocks,
    /// How far the wall clock was set forward since the file was written, in milliseconds.
    set: i64,
    /// The time of reading the file.
    pub(super) now: Instant,
}

impl Times {
    /// For times stored with the wall clock of `saved`.
    pub(super) fn new(saved: Option<&SavedClock>, clocks: Clocks, read: Instant) -> Self {
        let set = match (saved, SavedClock::new(&clocks)) {
            (Some(then), Some(now)) if then.boot == now.boot => now.ahead.saturating_sub(then.ahead),
            _ => 0,
        };
        Self { clocks, set, now: read }
    }

    pub(super) fn moment(&self, millis: u64) -> Instant {
        let millis = millis.saturating_add_signed(self.set);
        // A value that the clock cannot represent becomes now.
        match wall(millis) {
            Some(time) => self.clocks.moment(time),
            None => self.now,
        }
    }

    /// The wall clock time of an instant, by the current wall clock.
    pub(super) fn time(&self, moment: Instant) -> SystemTime {
        self.clocks.time(moment)
    }

    /// The instant of a past event; never in the future, even after clock changes.
    pub(super) fn past(&self, millis: u64) -> Instant {
        self.moment(millis).min(self.now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn abs_diff(one: Instant, other: Instant) -> Duration {
        one.max(other) - one.min(other)
    }

    const LITTLE: Duration = Duration::from_millis(2);
    const HOUR: Duration = Duration::from_secs(3600);

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Written with one wall clock and read with another one, in the same boot.
        #[test]
        fn clock_change_moves_no_saved_instant(ahead: i32, before in 0..400_000_000_i64, after in -400_000_000..400_000_000_i64) {
            let then = Clocks::now().set_by(before);
            let distance = Duration::from_millis(ahead.unsigned_abs().into());
            let moment = if ahead < 0 { Instant::now() - distance } else { Instant::now() + distance };
            let (saved, kept) = (SavedClock::new(&then), millis(&then, moment));
            let text = serde_json::to_string(&saved).unwrap();
            let saved: Option<SavedClock> = serde_json::from_str(&text).unwrap();
            let times = Times::new(saved.as_ref(), then.set_by(after), Instant::now());
            assert!(abs_diff(times.moment(kept), moment) <= LITTLE);
            assert!(times.past(kept) <= Instant::now());
        }

        /// No number in the file causes an error.
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
