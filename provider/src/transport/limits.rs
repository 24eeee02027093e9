//! Time limits of the phases, and how many handshakes may run at once.

use crate::transport::{HostPort, error::Cause};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// The whole way to an open channel, when nothing is configured.
const CONNECT: Duration = Duration::from_secs(30);
/// One call, when nothing is configured.
const CALL: Duration = Duration::from_secs(10);
/// Silence before a keepalive message is sent, when nothing is configured.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Keepalive messages that are sent before a session counts as dead: russh closes it one interval after the last of them.
const KEEPALIVE_MAX: usize = 2;
/// sshd's MaxStartups lets 10 unauthenticated connections in before it turns some away.
const HANDSHAKES_PER_HOST: usize = 8;
/// Before a server that turned us away is asked again. A login takes sshd some 30 ms, and longer on a busy machine.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Handshakes at once over all hosts, when nothing is configured.
const HANDSHAKES: usize = 64;

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
    pub(crate) fn patience(&self) -> impl Iterator<Item = Duration> + use<> {
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
        Deadline { begun: now, end: operation.map_or(own, |end| own.min(end)) }
    }
}

/// When a whole connection attempt is over: queueing, hops, logins and channels together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    begun: Instant,
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
        self.end.saturating_duration_since(self.begun)
    }

    pub(crate) fn end(self) -> Instant {
        self.end
    }
}

/// Lets a bounded number of handshakes run: more would be turned away by sshd, and each would come nearer to its limit.
#[derive(Debug)]
pub(crate) struct Gate {
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<HostPort, Arc<Semaphore>>>,
}

impl Gate {
    /// `all` handshakes at once over all hosts.
    pub(crate) fn new(all: Option<usize>) -> Self {
        let all = all.unwrap_or(HANDSHAKES).clamp(1, Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(all)), hosts: Mutex::default() }
    }

    /// Waits for a turn until the deadline. The turn ends when the returned value is dropped.
    pub(crate) async fn enter(&self, host: &HostPort, deadline: Deadline) -> Result<Turn, Cause> {
        let turn = tokio::time::timeout_at(deadline.end(), self.turn(host)).await;
        turn.map_err(|_| Cause::NoTurn { limit: deadline.whole() })
    }

    async fn turn(&self, host: &HostPort) -> Turn {
        let of_host = {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(
                hosts.entry(host.clone()).or_insert_with(|| Arc::new(Semaphore::new(HANDSHAKES_PER_HOST))),
            )
        };
        // The host first: who waits for a busy host keeps nobody from another one. The semaphores are never closed.
        let of_host = of_host.acquire_owned().await.ok();
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok();
        Turn { of_host, _of_all: of_all }
    }
}

/// The right to run a handshake.
#[derive(Debug)]
pub(crate) struct Turn {
    of_host: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// The handshake is over for us, but not yet for the host.
    pub(crate) fn only_at_host(mut self) -> HostTurn {
        HostTurn { _of_host: self.of_host.take() }
    }
}

/// A place among the handshakes of one host.
#[derive(Debug)]
pub(crate) struct HostTurn {
    _of_host: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn ninth_handshake_at_a_host_waits() {
        let gate = Gate::new(None);
        let host: HostPort = "h".parse().unwrap();
        let mut turns = Vec::new();
        for _ in 0..HANDSHAKES_PER_HOST {
            turns.push(gate.turn(&host).await);
        }
        assert!(gate.turn(&host).now_or_never().is_none());
        assert!(gate.turn(&"other".parse().unwrap()).now_or_never().is_some());
        let kept = turns.pop().map(Turn::only_at_host);
        assert!(gate.turn(&host).now_or_never().is_none());
        drop(kept);
        assert!(gate.turn(&host).now_or_never().is_some());
    }

    #[tokio::test]
    async fn releasing_global_permit_unblocks_other_hosts() {
        let gate = Gate::new(Some(1));
        let host = |name: &str| name.parse::<HostPort>().unwrap();
        let turn = gate.turn(&host("h")).await;
        assert!(gate.turn(&host("other")).now_or_never().is_none());
        let _kept = turn.only_at_host();
        assert!(gate.turn(&host("other")).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn handshake_permit_wait_ends_at_connect_deadline() {
        let gate = Gate::new(Some(1));
        let host: HostPort = "h".parse().unwrap();
        let limits = Limits::new(Some(Duration::from_secs(30)), None, None);
        let _taken = gate.turn(&host).await;

        let start = Instant::now();
        let error = gate.enter(&host, limits.deadline(None)).await.unwrap_err();
        assert!(matches!(error, Cause::NoTurn { limit } if limit.as_secs() == 30), "{error:?}");
        assert_eq!(start.elapsed().as_secs(), 30);

        // The operation ends before the connection's own limit.
        let start = Instant::now();
        let error = gate.enter(&host, limits.deadline(Some(start + Duration::from_secs(4)))).await;
        assert!(matches!(error, Err(Cause::NoTurn { limit }) if limit.as_secs() == 4), "{error:?}");
        assert_eq!(start.elapsed().as_secs(), 4);
    }

    #[test]
    fn phase_timeouts_fit_connect_timeout() {
        let limits = Limits::new(None, None, None);
        assert_eq!(limits.tcp, Duration::from_secs(10));
        assert_eq!(limits.handshake, Duration::from_secs(15));
        assert_eq!(limits.keepalive_silence(), Duration::from_secs(30));
        assert_eq!(limits.inactivity(), Duration::from_secs(45));
        // A third of 30 s: 0.25, 0.5, 1, 2 and 4 s; 8 s more would be too long.
        assert_eq!(limits.patience().count(), 5);
        assert_eq!(limits.patience().sum::<Duration>(), Duration::from_millis(7750));
        assert_eq!(Limits::new(Some(Duration::from_millis(300)), None, None).patience().count(), 0);
    }
}
