//! The limits of parallel SSH handshakes.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{address::HostPort, error::Cause, limits::Deadline};

/// sshd's MaxStartups accepts 10 unauthenticated connections before it rejects some.
pub const HANDSHAKES_PER_HOST: usize = 8;
/// The default number of parallel handshakes over all hosts.
pub const HANDSHAKES: usize = 64;

/// Limits the parallel handshakes: sshd rejects too many, and each would come closer to its timeout.
#[derive(Debug)]
pub(crate) struct HandshakeLimiter {
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<HostPort, Arc<Semaphore>>>,
}

impl HandshakeLimiter {
    /// `all`: the limit over all hosts.
    pub(crate) fn new(all: Option<usize>) -> Self {
        let all = all.unwrap_or(HANDSHAKES).clamp(1, Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(all)), hosts: Mutex::default() }
    }

    /// Waits for a permit until the deadline. Dropping the permit releases it.
    pub(crate) async fn enter(&self, host: &HostPort, deadline: Deadline) -> Result<Permit, Cause> {
        let of_host = {
            let mut hosts = self.hosts.lock();
            let new = || Arc::new(Semaphore::new(HANDSHAKES_PER_HOST));
            Arc::clone(hosts.entry(host.clone()).or_insert_with(new))
        };
        // The host first: a wait for a busy host does not block other hosts. The semaphores are never closed.
        let acquire = async {
            let host = of_host.acquire_owned().await.ok();
            Permit { _host: host, _all: Arc::clone(&self.all).acquire_owned().await.ok() }
        };
        let permit = tokio::time::timeout_at(deadline.end(), acquire).await;
        permit.map_err(|_| Cause::HandshakeQueueTimeout { limit: deadline.whole() })
    }
}

/// The permission for one handshake.
#[derive(Debug)]
pub(crate) struct Permit {
    _host: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::Instant;

    use super::*;
    use crate::limits::Limits;

    async fn permit(limiter: &HandshakeLimiter, host: &HostPort) -> Permit {
        limiter.enter(host, Limits::new(None, None, None).deadline(None)).await.unwrap()
    }

    #[tokio::test]
    async fn ninth_handshake_at_a_host_waits() {
        let limiter = HandshakeLimiter::new(None);
        let host: HostPort = "h".parse().unwrap();
        let mut permits = Vec::new();
        for _ in 0..HANDSHAKES_PER_HOST {
            permits.push(permit(&limiter, &host).await);
        }
        assert!(permit(&limiter, &host).now_or_never().is_none());
        assert!(permit(&limiter, &"other".parse().unwrap()).now_or_never().is_some());
        permits.pop();
        assert!(permit(&limiter, &host).now_or_never().is_some());
    }

    #[tokio::test]
    async fn global_permit_limits_all_hosts() {
        let limiter = HandshakeLimiter::new(Some(1));
        let host = |name: &str| name.parse::<HostPort>().unwrap();
        let first = permit(&limiter, &host("h")).await;
        assert!(permit(&limiter, &host("other")).now_or_never().is_none());
        drop(first);
        assert!(permit(&limiter, &host("other")).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn handshake_permit_wait_ends_at_connect_deadline() {
        let limiter = HandshakeLimiter::new(Some(1));
        let host: HostPort = "h".parse().unwrap();
        let limits = Limits::new(Some(std::time::Duration::from_secs(30)), None, None);
        let _taken = permit(&limiter, &host).await;

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
