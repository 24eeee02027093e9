//! What keeps a crowd at the door from the wrapper's own work: descriptors that are left to it, and a log that is not filled.

use std::{
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use rustix::process::{Resource, getrlimit};
use tokio::time::Instant;

/// Descriptors that no connection gets: to start a runner takes about ten for a moment, and the state file, the probes and the callbacks take some.
const KEPT: u64 = 32;

/// The time in which a [`Quiet`] has its lines.
const MINUTE: Duration = Duration::from_secs(60);

/// Whether this connection has one of the last descriptors that the process can have. The kernel gives away the lowest number that is
/// free, so the number tells how many are in use.
pub(crate) fn has_one_of_the_last(connection: &impl AsFd) -> bool {
    let number = u64::try_from(connection.as_fd().as_raw_fd()).unwrap_or_default();
    getrlimit(Resource::Nofile).current.is_some_and(|limit| is_one_of_the_last(number, limit))
}

/// Where there are few, a third of them is kept.
fn is_one_of_the_last(number: u64, limit: u64) -> bool {
    number.saturating_add(KEPT.min(limit / 3)) >= limit
}

/// So many lines of the log in a minute, about something that a stranger can bring about without end.
#[derive(Debug)]
pub(crate) struct Quiet {
    lines: u32,
    said: u32,
    since: Option<Instant>,
}

impl Quiet {
    pub(crate) fn after(lines: u32) -> Self {
        Self { lines, said: 0, since: None }
    }

    /// Whether another line may be written.
    pub(crate) fn may_speak(&mut self) -> bool {
        if self.since.is_none_or(|since| since.elapsed() >= MINUTE) {
            (self.since, self.said) = (Some(Instant::now()), 0);
        }
        self.said = self.said.saturating_add(1);
        self.said <= self.lines
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn last_descriptors_are_reserved() {
        for (number, limit, kept) in
            [(100, 1024, false), (991, 1024, false), (992, 1024, true), (20, 40, false), (27, 40, true)]
        {
            assert_eq!(is_one_of_the_last(number, limit), kept, "{number} of {limit}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn log_rate_limit_per_minute() {
        let mut quiet = Quiet::after(2);
        let mut four = || [(); 4].map(|()| quiet.may_speak());
        assert_eq!(four(), [true, true, false, false]);
        advance(MINUTE / 2).await;
        assert_eq!(four(), [false; 4]);
        advance(MINUTE / 2).await;
        assert_eq!(four(), [true, true, false, false]);
    }
}
