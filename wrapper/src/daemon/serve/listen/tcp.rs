//! TCP listeners, on loopback unless a flag allows other addresses.

use std::{io, time::Duration};

use tokio::{
    net::{TcpListener, lookup_host},
    time::timeout,
};

use super::{Address, ListenError, Rules};
use crate::supervise::lock_wait::{self, Attempt, LockOwner};

/// Timeout of a host name lookup at the start. The running runner of the previous wrapper may have a deadline.
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);

/// Listens on the first address of `host`, IPv4 before IPv6, as Go's `net.Listen` does for upstream's wrapper.
pub(super) async fn bind(address: &Address, host: &str, rules: &Rules) -> Result<TcpListener, ListenError> {
    let io = |what| move |source| ListenError::Io { address: address.clone(), what, source };
    let unresolved = |source| ListenError::Unresolved { address: address.clone(), source };
    let mut found: Vec<_> = limited(lookup_host(host)).await.map_err(unresolved)?.collect();
    found.sort_by_key(std::net::SocketAddr::is_ipv6);
    let resolved = *found.first().ok_or_else(|| ListenError::NoAddress { address: address.clone() })?;
    if !resolved.ip().is_loopback() && !rules.beyond_loopback {
        let allowed_by = rules.allowed_by;
        return Err(ListenError::BeyondLoopback { address: address.clone(), resolved, allowed_by });
    }
    let attempt = lock_wait::take(|| match std::net::TcpListener::bind(resolved) {
        Ok(listener) => Ok(Attempt::Ours(listener)),
        // The process that uses the address is unknown.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(Attempt::Taken(LockOwner::new(None))),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            Err(ListenError::NotAvailable { address: address.clone(), resolved })
        }
        Err(error) => Err(io("listen")(error)),
    });
    match attempt.await? {
        Attempt::Taken(holder) => Err(ListenError::Alive { address: address.clone(), holder }),
        Attempt::Ours(listener) => {
            listener.set_nonblocking(true).map_err(io("listen"))?;
            TcpListener::from_std(listener).map_err(io("listen"))
        }
    }
}

/// Waits for a lookup, at most [`RESOLVE_LIMIT`].
async fn limited<T>(lookup: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(RESOLVE_LIMIT, lookup).await.unwrap_or_else(|_| {
        let why = format!(
            "no response from DNS or the name service within {RESOLVE_LIMIT:?}; use an IP address to avoid \
             the lookup"
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// The clock is paused: it advances to the limit when no other task can run.
    #[tokio::test(start_paused = true)]
    async fn hanging_name_resolution_times_out() {
        let begin = Instant::now();
        let error = limited(std::future::pending::<io::Result<()>>()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = begin.elapsed();
        assert!(took >= RESOLVE_LIMIT && took < 2 * RESOLVE_LIMIT, "{took:?}");
    }
}
