//! Limits on what clients can use up: the time of a call, and log lines.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::supervise::LONGEST_STEP;

/// Timeout until the response to a call begins: the longest step of the supervisor, and time for the rest, for example a question to the runner.
/// Clients wait longer.
pub(crate) const CALL_LIMIT: Duration = LONGEST_STEP.saturating_add(Duration::from_secs(10));

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

/// One limit of several tasks, for calls that any client can repeat. More lines would push the audit log out of the journal.
#[derive(Clone, Debug)]
pub(crate) struct CallLogLimit(Arc<Mutex<LogRateLimiter>>);

impl Default for CallLogLimit {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LogRateLimiter::per_minute(Self::PER_MINUTE))))
    }
}

impl CallLogLimit {
    const PER_MINUTE: u32 = 20;

    pub(crate) fn allow_log(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).allow_log()
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

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
