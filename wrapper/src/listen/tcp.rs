//! TCP listeners, on loopback unless something else was asked for by name.

use std::io;

use tokio::net::{TcpListener, lookup_host};

use super::{Address, ListenError, Rules};
use crate::holder::{self, Attempt, Holder};

/// Listens on the first address of `host`, IPv4 before IPv6, as Go's `net.Listen` does for upstream's wrapper.
pub(super) async fn bind(address: &Address, host: &str, rules: &Rules) -> Result<TcpListener, ListenError> {
    let io = |what| move |source| ListenError::Io { address: address.clone(), what, source };
    let mut found: Vec<_> = lookup_host(host).await.map_err(io("resolve the host"))?.collect();
    found.sort_by_key(std::net::SocketAddr::is_ipv6);
    let resolved = *found.first().ok_or_else(|| ListenError::NoAddress { address: address.clone() })?;
    if !resolved.ip().is_loopback() && !rules.beyond_loopback {
        let allowed_by = rules.allowed_by;
        return Err(ListenError::BeyondLoopback { address: address.clone(), resolved, allowed_by });
    }
    let attempt = holder::take(|| match std::net::TcpListener::bind(resolved) {
        Ok(listener) => Ok(Attempt::Ours(listener)),
        // Whose it is cannot be asked.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(Attempt::Taken(Holder::new(None))),
        Err(error) => Err(error),
    });
    match attempt.await.map_err(io("listen"))? {
        Attempt::Taken(holder) => Err(ListenError::Alive { address: address.clone(), holder }),
        Attempt::Ours(listener) => {
            listener.set_nonblocking(true).map_err(io("listen"))?;
            TcpListener::from_std(listener).map_err(io("listen"))
        }
    }
}
