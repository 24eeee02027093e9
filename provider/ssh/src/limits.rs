//! Time limits of a connection.

use std::time::Duration;

use tokio::time::Instant;

/// The default time limit for opening a tunnel.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The default time limit of a call over a tunnel.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The default interval of keepalive messages.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Shorter attempts are not evidence about the host: a lost packet is sent again after a second (RFC 6298).
pub(crate) const NO_RESPONSE: Duration = Duration::from_secs(1);
/// Keepalive messages without a response. russh closes the session one interval after the last one.
const KEEPALIVE_MAX: usize = 2;
/// The first delay before a retry after a rejection because of load. A login takes sshd about 30 ms, more on a busy machine.
const BUSY_RETRY_DELAY: Duration = Duration::from_millis(250);

/// The time limits of a connector.
#[derive(Debug, Clone)]
pub struct Limits {
    /// All phases together.
    pub(crate) connect: Duration,
    pub(crate) tcp: Duration,
    pub(crate) handshake: Duration,
    pub(crate) auth: Duration,
    pub(crate) channel: Duration,
    pub call: Duration,
    pub(crate) keepalive_interval: Duration,
    pub(crate) keepalive_max: usize,
}

impl Limits {
    /// Each phase has a third or a half of the connection timeout, TCP at least the time that counts as an attempt. The deadline limits all
    /// phases together.
    pub(crate) fn new(
        connect: Option<Duration>,
        call: Option<Duration>,
        keepalive: Option<Duration>,
    ) -> Self {
        let connect = connect.unwrap_or(CONNECT_TIMEOUT);
        Self {
            connect,
            tcp: (connect / 3).max(NO_RESPONSE).min(connect),
            handshake: connect / 2,
            auth: connect / 2,
            channel: connect / 3,
            call: call.unwrap_or(CALL_TIMEOUT),
            keepalive_interval: keepalive.unwrap_or(KEEPALIVE_INTERVAL),
            keepalive_max: KEEPALIVE_MAX,
        }
    }

    /// The time without data after which keepalive closes the session.
    pub(crate) fn keepalive_silence(&self) -> Duration {
        self.keepalive_interval * (self.keepalive_max as u32 + 1)
    }

    /// The time without data after which the session is closed in any case. It is longer than keepalive needs, and covers only a blocked
    /// socket write.
    pub(crate) fn inactivity(&self) -> Duration {
        self.keepalive_silence() + self.keepalive_interval + Duration::from_secs(5)
    }

    /// The delays between retries after a rejection because of load. They double, up to a third of the connection timeout in total.
    pub(crate) fn busy_pauses(&self) -> impl Iterator<Item = Duration> + use<> {
        let (first, mut left) = (BUSY_RETRY_DELAY, self.connect / 3);
        (0..).map(move |turn| first * 2_u32.saturating_pow(turn)).map_while(move |pause| {
            left = left.checked_sub(pause)?;
            Some(pause)
        })
    }

    /// The deadline of a connection: its timeout, or the end of the operation that needs it.
    pub(crate) fn deadline(&self, operation: Option<Instant>) -> Deadline {
        let now = Instant::now();
        let own = now + self.connect;
        Deadline { start: now, end: operation.map_or(own, |end| own.min(end)) }
    }
}

/// The deadline of a connection attempt: queue, jump hosts, logins and channels together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    start: Instant,
    end: Instant,
}

impl Deadline {
    /// The time limit of a phase, or the remaining time.
    pub(crate) fn cap(self, limit: Duration) -> Duration {
        limit.min(self.left())
    }

    pub(crate) fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The time limit at the start.
    pub(crate) fn whole(self) -> Duration {
        self.end.saturating_duration_since(self.start)
    }

    pub(crate) fn end(self) -> Instant {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_timeouts_fit_connect_timeout() {
        let limits = Limits::new(None, None, None);
        assert_eq!(limits.tcp, Duration::from_secs(10));
        assert_eq!(limits.handshake, Duration::from_secs(15));
        for (connect, tcp) in [(6, 2), (3, 1), (2, 1)] {
            let limits = Limits::new(Some(Duration::from_secs(connect)), None, None);
            assert_eq!(limits.tcp, Duration::from_secs(tcp), "an attempt that counts with {connect} s");
        }
        assert_eq!(limits.keepalive_silence(), Duration::from_secs(30));
        assert_eq!(limits.inactivity(), Duration::from_secs(45));
        // A third of 30 s: 0.25, 0.5, 1, 2 and 4 s; 8 s more would be too long.
        assert_eq!(limits.busy_pauses().count(), 5);
        assert_eq!(limits.busy_pauses().sum::<Duration>(), Duration::from_millis(7750));
        assert_eq!(Limits::new(Some(Duration::from_millis(300)), None, None).busy_pauses().count(), 0);
    }

    /// Phases that are each slow for a part of the time share one deadline.
    #[tokio::test(start_paused = true)]
    async fn deadline_limits_later_phases_to_remaining_time() {
        let seconds = Duration::from_secs;
        let limits = Limits::new(Some(seconds(30)), None, None);
        let deadline = limits.deadline(None);
        assert_eq!(deadline.cap(limits.handshake), seconds(15));
        tokio::time::sleep(seconds(12)).await;
        assert_eq!(deadline.cap(limits.handshake), seconds(15));
        tokio::time::sleep(seconds(12)).await;
        assert_eq!(deadline.cap(limits.handshake), seconds(6));
        assert_eq!(deadline.whole(), seconds(30));
        tokio::time::sleep(seconds(12)).await;
        assert_eq!(deadline.cap(limits.handshake), Duration::ZERO);

        // The operation ends before the timeout of the connection.
        let deadline = limits.deadline(Some(Instant::now() + seconds(8)));
        assert_eq!((deadline.cap(limits.handshake), deadline.whole()), (seconds(8), seconds(8)));
    }
}
