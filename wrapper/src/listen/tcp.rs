//! TCP listeners, on loopback unless something else was asked for by name.

use tokio::net::{TcpListener, lookup_host};

use super::{Address, ListenError};

/// Listens on the first address of `host`, IPv4 before IPv6, as Go's `net.Listen` does for upstream's wrapper.
pub(super) async fn bind(
    address: &Address,
    host: &str,
    beyond_loopback: bool,
) -> Result<TcpListener, ListenError> {
    let io = |what| move |source| ListenError::Io { address: address.clone(), what, source };
    let mut found: Vec<_> = lookup_host(host).await.map_err(io("resolve the host"))?.collect();
    found.sort_by_key(std::net::SocketAddr::is_ipv6);
    let resolved = *found.first().ok_or_else(|| ListenError::NoAddress { address: address.clone() })?;
    if !resolved.ip().is_loopback() && !beyond_loopback {
        return Err(ListenError::BeyondLoopback { address: address.clone(), resolved });
    }
    TcpListener::bind(resolved).await.map_err(io("listen"))
}
