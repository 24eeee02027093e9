//! Limits on what clients can use up: file descriptors, and log lines.

use std::{
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use rustix::process::{Resource, getrlimit};
use tokio::time::Instant;

/// Descriptors that connections cannot use: starting a runner takes about ten, and the state file, the probes and the callbacks take some.
const RESERVED_FDS: u64 = 32;

/// Whether this connection uses a reserved descriptor. The kernel assigns the lowest free number, so the number shows how many are in use.
pub(crate) fn uses_reserved_fd(connection: &impl AsFd) -> bool {
    let number = u64::try_from(connection.as_fd().as_raw_fd()).unwrap_or_default();
    getrlimit(Resource::Nofile).current.is_some_and(|limit| is_reserved_fd(number, limit))
}

/// A third of the descriptors at most is reserved.
fn is_reserved_fd(number: u64, limit: u64) -> bool {
    number.saturating_add(RESERVED_FDS.min(limit / 3)) >= limit
}

/// Limits the log lines about an event that any client can cause.
#[derive(Debug)]
pub(crate) struct LogRateLimiter {
    per_minute: u32,
    lines: u32,
    since: Option<Instant>,
}

impl LogRateLimiter {
    pub(crate) fn per_minute(per_minute: u32) -> Self {
        Self { per_minute, lines: 0, since: None }
    }

    pub(crate) fn allow_log(&mut self) -> bool {
        if self.since.is_none_or(|since| since.elapsed() >= MINUTE) {
            (self.since, self.lines) = (Some(Instant::now()), 0);
        }
        self.lines = self.lines.saturating_add(1);
        self.lines <= self.per_minute
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn last_descriptors_are_reserved() {
        for (number, limit, reserved) in
            [(100, 1024, false), (991, 1024, false), (992, 1024, true), (20, 40, false), (27, 40, true)]
        {
            assert_eq!(is_reserved_fd(number, limit), reserved, "{number} of {limit}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn log_lines_beyond_rate_per_minute_are_dropped() {
        let mut limiter = LogRateLimiter::per_minute(2);
        let mut four = || [(); 4].map(|()| limiter.allow_log());
        assert_eq!(four(), [true, true, false, false]);
        advance(MINUTE / 2).await;
        assert_eq!(four(), [false; 4]);
        advance(MINUTE / 2).await;
        assert_eq!(four(), [true, true, false, false]);
    }
}
