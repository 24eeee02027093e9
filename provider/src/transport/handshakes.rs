//! How many SSH handshakes may run at once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::transport::{address::HostPort, error::Cause, limits::Deadline};

/// sshd's MaxStartups lets 10 unauthenticated connections in before it refuses some.
const HANDSHAKES_PER_HOST: usize = 8;
/// Handshakes at once over all hosts, when nothing is configured.
const HANDSHAKES: usize = 64;

/// Lets a bounded number of handshakes run: more would be turned away by sshd, and each would come nearer to its limit.
#[derive(Debug)]
pub(crate) struct HandshakeLimiter {
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<HostPort, Arc<Semaphore>>>,
}

impl HandshakeLimiter {
    /// `all` handshakes at once over all hosts.
    pub(crate) fn new(all: Option<usize>) -> Self {
        let all = all.unwrap_or(HANDSHAKES).clamp(1, Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(all)), hosts: Mutex::default() }
    }

    /// Waits for a turn until the deadline. The turn ends when the returned value is dropped.
    pub(crate) async fn enter(&self, host: &HostPort, deadline: Deadline) -> Result<Permit, Cause> {
        let permit = tokio::time::timeout_at(deadline.end(), self.permit(host)).await;
        permit.map_err(|_| Cause::HandshakeQueueTimeout { limit: deadline.whole() })
    }

    async fn permit(&self, host: &HostPort) -> Permit {
        let of_host = {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(
                hosts.entry(host.clone()).or_insert_with(|| Arc::new(Semaphore::new(HANDSHAKES_PER_HOST))),
            )
        };
        // The host first: who waits for a busy host keeps nobody from another one. The semaphores are never closed.
        let of_host = of_host.acquire_owned().await.ok();
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok();
        Permit { of_host, _of_all: of_all }
    }
}

/// The right to run a handshake.
#[derive(Debug)]
pub(crate) struct Permit {
    of_host: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Permit {
    /// The handshake is over for us, but not yet for the host.
    pub(crate) fn only_at_host(mut self) -> HostPermit {
        HostPermit { _of_host: self.of_host.take() }
    }
}

/// A place among the handshakes of one host.
#[derive(Debug)]
pub(crate) struct HostPermit {
    _of_host: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::Instant;

    use super::*;
    use crate::transport::limits::Limits;

    #[tokio::test]
    async fn ninth_handshake_at_a_host_waits() {
        let limiter = HandshakeLimiter::new(None);
        let host: HostPort = "h".parse().unwrap();
        let mut permits = Vec::new();
        for _ in 0..HANDSHAKES_PER_HOST {
            permits.push(limiter.permit(&host).await);
        }
        assert!(limiter.permit(&host).now_or_never().is_none());
        assert!(limiter.permit(&"other".parse().unwrap()).now_or_never().is_some());
        let kept = permits.pop().map(Permit::only_at_host);
        assert!(limiter.permit(&host).now_or_never().is_none());
        drop(kept);
        assert!(limiter.permit(&host).now_or_never().is_some());
    }

    #[tokio::test]
    async fn releasing_global_permit_unblocks_other_hosts() {
        let limiter = HandshakeLimiter::new(Some(1));
        let host = |name: &str| name.parse::<HostPort>().unwrap();
        let permit = limiter.permit(&host("h")).await;
        assert!(limiter.permit(&host("other")).now_or_never().is_none());
        let _kept = permit.only_at_host();
        assert!(limiter.permit(&host("other")).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn handshake_permit_wait_ends_at_connect_deadline() {
        let limiter = HandshakeLimiter::new(Some(1));
        let host: HostPort = "h".parse().unwrap();
        let limits = Limits::new(Some(std::time::Duration::from_secs(30)), None, None);
        let _taken = limiter.permit(&host).await;

        let start = Instant::now();
        let error = limiter.enter(&host, limits.deadline(None)).await.unwrap_err();
        assert!(
            matches!(error, Cause::HandshakeQueueTimeout { limit } if limit.as_secs() == 30),
            "{error:?}"
        );
        assert_eq!(start.elapsed().as_secs(), 30);

        // The operation ends before the connection's own limit.
        let start = Instant::now();
        let error =
            limiter.enter(&host, limits.deadline(Some(start + std::time::Duration::from_secs(4)))).await;
        assert!(
            matches!(error, Err(Cause::HandshakeQueueTimeout { limit }) if limit.as_secs() == 4),
            "{error:?}"
        );
        assert_eq!(start.elapsed().as_secs(), 4);
    }
}
