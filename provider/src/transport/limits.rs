//! Time limits of the phases of a connection.

use std::time::Duration;

use tokio::time::Instant;

/// The whole way to an open channel, when nothing is configured.
const CONNECT: Duration = Duration::from_secs(30);
/// One call, when nothing is configured.
const CALL: Duration = Duration::from_secs(10);
/// Silence before a keepalive message is sent, when nothing is configured.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Keepalive messages that are sent before a session counts as dead: russh closes it one interval after the last of them.
const KEEPALIVE_MAX: usize = 2;
/// The first pause before a server that refused the connection for load is tried again. A login takes sshd some 30 ms, and longer on a busy machine.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// How long each phase may take.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// From the first packet to the open channel.
    pub(crate) connect: Duration,
    pub(crate) tcp: Duration,
    pub(crate) handshake: Duration,
    pub(crate) auth: Duration,
    pub(crate) channel: Duration,
    pub(crate) call: Duration,
    pub(crate) keepalive_interval: Duration,
    pub(crate) keepalive_max: usize,
}

impl Limits {
    /// A phase gets a third or a half of the whole; the deadline of the whole holds besides.
    pub(crate) fn new(
        connect: Option<Duration>,
        call: Option<Duration>,
        keepalive: Option<Duration>,
    ) -> Self {
        let connect = connect.unwrap_or(CONNECT);
        Self {
            connect,
            tcp: connect / 3,
            handshake: connect / 2,
            auth: connect / 2,
            channel: connect / 3,
            call: call.unwrap_or(CALL),
            keepalive_interval: keepalive.unwrap_or(KEEPALIVE),
            keepalive_max: KEEPALIVE_MAX,
        }
    }

    /// How long a server was silent when the keepalive gives it up.
    pub(crate) fn keepalive_silence(&self) -> Duration {
        self.keepalive_interval * (self.keepalive_max as u32 + 1)
    }

    /// How long a session lives without a byte. Longer than the keepalive needs, it ends only what that cannot: a socket write that blocks.
    pub(crate) fn inactivity(&self) -> Duration {
        self.keepalive_silence() + self.keepalive_interval + Duration::from_secs(5)
    }

    /// The pauses before a server that turns connections away is asked again: each twice as long as the one before, a third of the whole in all.
    pub(crate) fn busy_pauses(&self) -> impl Iterator<Item = Duration> + use<> {
        let (first, mut left) = (FIRST_PAUSE, self.connect / 3);
        (0..).map(move |turn| first * 2_u32.saturating_pow(turn)).map_while(move |pause| {
            left = left.checked_sub(pause)?;
            Some(pause)
        })
    }

    /// The deadline of a connection that begins now: its own limit, or the end of the operation that needs it.
    pub(crate) fn deadline(&self, operation: Option<Instant>) -> Deadline {
        let now = Instant::now();
        let own = now + self.connect;
        Deadline { start: now, end: operation.map_or(own, |end| own.min(end)) }
    }
}

/// When a whole connection attempt is over: queueing, hops, logins and channels together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    start: Instant,
    end: Instant,
}

impl Deadline {
    /// A phase's limit, or what is left of the whole.
    pub(crate) fn cap(self, limit: Duration) -> Duration {
        limit.min(self.left())
    }

    /// What is left of the whole.
    pub(crate) fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The limit of the whole, as it was at the beginning.
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
        assert_eq!(limits.keepalive_silence(), Duration::from_secs(30));
        assert_eq!(limits.inactivity(), Duration::from_secs(45));
        // A third of 30 s: 0.25, 0.5, 1, 2 and 4 s; 8 s more would be too long.
        assert_eq!(limits.busy_pauses().count(), 5);
        assert_eq!(limits.busy_pauses().sum::<Duration>(), Duration::from_millis(7750));
        assert_eq!(Limits::new(Some(Duration::from_millis(300)), None, None).busy_pauses().count(), 0);
    }
}
