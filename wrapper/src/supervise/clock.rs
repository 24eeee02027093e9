//! Converts between instants and wall clock times.
//!
//! Timers use the monotonic clock; only reported and stored times are converted to wall clock time, so a change of the wall clock moves no
//! deadline. Reported times always use the current wall clock: after a change they move with it, so the difference between a reported time
//! and the current time is always correct. Without a change, an instant is always reported as the same time: the kernel adjusts both
//! clocks together, so their offset is read only once.

use std::{
    cell::Cell,
    time::{Duration, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The wall clock time of an instant.
pub(crate) fn time(moment: Instant) -> SystemTime {
    Clocks::now().time(moment)
}

/// One reading of the clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    moment: Instant,
    wall: SystemTime,
    /// Time since boot, the same in all processes; [`Instant`] does not expose it.
    monotonic: Duration,
}

impl Clocks {
    /// A larger difference between readings means that the wall clock was changed.
    const CLOCK_CHANGE: Duration = Duration::from_millis(50);

    const READINGS: usize = 3;

    /// The current reading: an earlier one of this thread, unless the wall clock was changed since.
    pub(crate) fn now() -> Self {
        thread_local!(static LAST: Cell<Option<Clocks>> = const { Cell::new(None) });
        let (read, took) = Self::read();
        let now = LAST.get().filter(|last| last.still_holds(&read, took)).unwrap_or(read);
        LAST.set(Some(now));
        now
    }

    /// Whether the wall clock was not changed between these readings; `took` is the duration of the later one.
    fn still_holds(&self, later: &Self, took: Duration) -> bool {
        apart(self.time(later.moment), later.wall) <= Self::CLOCK_CHANGE + took
    }

    /// The quickest of a few readings, and its duration: other processes may run between the readings of two clocks.
    fn read() -> (Self, Duration) {
        let readings = [(); Self::READINGS].map(|()| {
            let moment = Instant::now();
            let wall = SystemTime::now();
            let monotonic = clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default();
            (Self { moment, wall, monotonic }, moment.elapsed())
        });
        let [first, rest @ ..] = readings;
        rest.into_iter().fold(first, |best, next| if next.1 < best.1 { next } else { best })
    }

    /// The wall clock time of an instant. A time that cannot be represented becomes now.
    pub(crate) fn time(&self, moment: Instant) -> SystemTime {
        match moment.checked_duration_since(self.moment) {
            Some(ahead) => self.wall.checked_add(ahead),
            None => self.wall.checked_sub(self.moment.saturating_duration_since(moment)),
        }
        .unwrap_or(self.wall)
    }

    /// The instant of a wall clock time. An instant that cannot be represented becomes now.
    pub(crate) fn moment(&self, time: SystemTime) -> Instant {
        match time.duration_since(self.wall) {
            Ok(ahead) => self.moment.checked_add(ahead),
            Err(behind) => self.moment.checked_sub(behind.duration()),
        }
        .unwrap_or(self.moment)
    }

    /// Offset of the wall clock to the monotonic clock, in milliseconds. It changes only when the wall clock is changed.
    pub(crate) fn ahead(&self) -> i64 {
        let since_1970 = self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        match since_1970.checked_sub(self.monotonic) {
            Some(ahead) => millis(ahead),
            None => -millis(self.monotonic.saturating_sub(since_1970)),
        }
    }
}

fn apart(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other).unwrap_or_else(|error| error.duration())
}

#[cfg(test)]
impl Clocks {
    /// A reading as of this instant.
    pub(crate) fn at(moment: Instant) -> Self {
        Self { moment, ..Self::now() }
    }

    /// As if the wall clock was set forward or back by this many milliseconds.
    pub(crate) fn set_by(self, millis: i64) -> Self {
        let by = Duration::from_millis(millis.unsigned_abs());
        Self { wall: if millis < 0 { self.wall - by } else { self.wall + by }, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn wall_time_of_instant_is_stable() {
        let moment = Instant::now() - HOUR;
        let told = time(moment);
        for _ in 0..1000 {
            assert_eq!(time(moment), told);
        }
        assert!(apart(told + HOUR, SystemTime::now()) < HOUR / 60);
    }

    #[test]
    fn clock_change_is_distinguished_from_slow_reading() {
        let clocks = Clocks::now();
        let (quick, slow) = (Duration::from_millis(10), Duration::from_secs(1));
        for (millis, took, holds) in [
            (0, quick, true),
            (20, quick, true),
            (-500, quick, false),
            (500, quick, false),
            (500, slow, true),
            (-2_000, slow, false),
        ] {
            assert_eq!(
                clocks.still_holds(&clocks.set_by(millis), took),
                holds,
                "{millis} ms, read in {took:?}"
            );
        }
    }

    #[test]
    fn instant_and_wall_time_round_trip() {
        let clocks = Clocks::now();
        for moment in [clocks.moment + HOUR, clocks.moment, clocks.moment - HOUR] {
            assert_eq!(clocks.moment(clocks.time(moment)), moment);
        }
    }

    #[test]
    fn clock_change_shifts_reported_times() {
        let clocks = Clocks::now();
        for millis in [-3_600_000, -1, 0, 1, 3_600_000] {
            let set = clocks.set_by(millis);
            assert_eq!(set.ahead() - clocks.ahead(), millis);
            let moved = apart(set.time(clocks.moment), clocks.time(clocks.moment));
            assert_eq!(moved, Duration::from_millis(millis.unsigned_abs()));
        }
    }
}
