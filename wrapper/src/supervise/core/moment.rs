//! An instant of the monotonic clock with the wall clock time that was stamped on it.
//!
//! Timers use the monotonic clock, which no change of the wall clock moves. Reported times are the stamps, so that a time that was reported once
//! does not change. The state file has both: the monotonic clock is the same in all processes of one boot, so that the next wrapper keeps a deadline
//! exactly. Time during a suspend of the host does not count. After a reboot there is no runner, and only the stamps are used.

use std::{
    cell::Cell,
    cmp::Ordering,
    ops::{Add, Sub},
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::time::Instant;

thread_local! {
    /// The beginning of a virtual wall clock, of a simulation in this thread.
    static VIRTUAL: Cell<Option<(Instant, SystemTime)>> = const { Cell::new(None) };
}

/// The wall clock of this thread follows the clock of its runtime from now on, so that the same run has the same times.
pub(crate) fn use_virtual_wall_clock() {
    let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    VIRTUAL.set(Some((Instant::now(), begin)));
}

/// Two moments are compared by their instants.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub at: Instant,
    pub wall: SystemTime,
}

impl Moment {
    pub fn now() -> Self {
        let at = Instant::now();
        let wall = match VIRTUAL.get() {
            None => SystemTime::now(),
            Some((begin, wall)) => wall + at.saturating_duration_since(begin),
        };
        Self { at, wall }
    }

    /// The moment at this time of the kernel's monotonic clock, which has passed.
    pub fn of_monotonic(since_boot: Duration) -> Self {
        let now = Self::now();
        now - instant(since_boot).map_or(Duration::ZERO, |at| now.at.saturating_duration_since(at))
    }

    /// The time since `earlier`, or zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.at.saturating_duration_since(earlier.at)
    }

    pub fn elapsed(self) -> Duration {
        self.at.elapsed()
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self { at: self.at + time, wall: self.wall.checked_add(time).unwrap_or(self.wall) }
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self {
            at: self.at.checked_sub(time).unwrap_or(self.at),
            wall: self.wall.checked_sub(time).unwrap_or(self.wall),
        }
    }
}

/// A moment in the state file, in milliseconds.
#[derive(Serialize, Deserialize)]
struct Saved {
    /// Since the boot.
    monotonic: u64,
    /// Since 1970.
    wall: u64,
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let wall = self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Saved { monotonic: millis(monotonic(self.at)), wall: millis(wall) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Moment {
    /// A value that a clock cannot represent becomes now, as does an instant of an earlier boot.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let saved = Saved::deserialize(deserializer)?;
        let at = instant(Duration::from_millis(saved.monotonic)).unwrap_or_else(|| base().0);
        let wall = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(saved.wall));
        Ok(Self { at, wall: wall.unwrap_or_else(SystemTime::now) })
    }
}

/// The time of the monotonic clock at this instant.
pub(crate) fn monotonic(at: Instant) -> Duration {
    let (base, since_boot) = base();
    match at.checked_duration_since(base) {
        Some(later) => since_boot + later,
        None => since_boot.saturating_sub(base - at),
    }
}

/// The instant at this time of the monotonic clock; `None` if it cannot be represented.
fn instant(monotonic: Duration) -> Option<Instant> {
    let (base, since_boot) = base();
    match monotonic.checked_sub(since_boot) {
        Some(later) => base.checked_add(later),
        None => base.checked_sub(since_boot.saturating_sub(monotonic)),
    }
}

/// An instant of this process, and the time since the boot then: [`Instant`] does not expose it.
fn base() -> (Instant, Duration) {
    static BASE: OnceLock<(std::time::Instant, Duration)> = OnceLock::new();
    let (at, since_boot) = *BASE.get_or_init(|| {
        let monotonic = clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default();
        (std::time::Instant::now(), monotonic)
    });
    (at.into(), since_boot)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn saved_moment_is_restored(seconds in -400_000..400_000_i64) {
            let distance = Duration::from_secs(seconds.unsigned_abs());
            let moment = if seconds < 0 { Moment::now() - distance } else { Moment::now() + distance };
            let text = serde_json::to_string(&moment).unwrap();
            let restored: Moment = serde_json::from_str(&text).unwrap();
            let apart = restored.since(moment).max(moment.since(restored));
            // An instant before the boot becomes the boot.
            let boot = base().1 < distance && seconds < 0;
            prop_assert!(boot || apart <= Duration::from_millis(2), "{apart:?}");
            prop_assert!(moment.wall.duration_since(restored.wall).unwrap() < Duration::from_millis(1));
        }

        /// No number in the file causes an error.
        #[test]
        fn any_saved_number_is_accepted(monotonic: u64, wall: u64) {
            let moment: Moment = serde_json::from_value(serde_json::json!({ "monotonic": monotonic, "wall": wall })).unwrap();
            prop_assert!(serde_json::to_string(&moment).is_ok());
        }
    }
}
