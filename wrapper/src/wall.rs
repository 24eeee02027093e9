//! Moments of the two clocks, turned into each other.

use std::time::SystemTime;

use tokio::time::Instant;

/// The wall time of a moment. Waiting goes by the monotonic clock, and only what is told or kept is turned into wall time, so a clock
/// that is set changes no deadline.
#[must_use]
pub(crate) fn time(moment: Instant) -> SystemTime {
    let now = Instant::now();
    let wall = SystemTime::now();
    match moment.checked_duration_since(now) {
        Some(ahead) => wall.checked_add(ahead),
        None => wall.checked_sub(now.saturating_duration_since(moment)),
    }
    .unwrap_or(wall)
}

/// The moment of a wall time. What the clock cannot hold becomes now.
#[must_use]
pub(crate) fn moment(time: SystemTime) -> Instant {
    let now = Instant::now();
    match time.duration_since(SystemTime::now()) {
        Ok(ahead) => now.checked_add(ahead),
        Err(behind) => now.checked_sub(behind.duration()),
    }
    .unwrap_or(now)
}
