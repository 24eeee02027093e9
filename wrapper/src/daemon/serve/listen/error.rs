//! Why an address cannot be used.

use std::{io, net::SocketAddr, path::PathBuf};

use thiserror::Error;

use super::address::Address;
use crate::supervise::lock_wait::LockOwner;

/// Why an address cannot be used. Each message begins with the address.
#[derive(Debug, Error)]
pub enum ListenError {
    #[error(
        "{address}: in use by {holder}. If that is a wrapper, stop it (on SIGTERM it drains its \
         runner), or use another address"
    )]
    Alive { address: Address, holder: LockOwner },
    #[error("{address}: {path:?} exists and is not a socket")]
    NotASocket { address: Address, path: PathBuf },
    #[error("{address}: the path is too long for a socket (at most 107 bytes)")]
    TooLong { address: Address },
    #[error("group {group:?} is not in /etc/group; use the GID of a group of a directory service")]
    NoSuchGroup { group: String },
    #[error(
        "{address}: other hosts can reach {resolved}, and TCP clients are not authenticated; listen on \
         loopback, or allow this with {allowed_by}"
    )]
    BeyondLoopback { address: Address, resolved: SocketAddr, allowed_by: &'static str },
    #[error("{address}: the host name has no IP address")]
    NoAddress { address: Address },
    #[error("{address}: cannot resolve the host name")]
    Unresolved {
        address: Address,
        #[source]
        source: io::Error,
    },
    #[error("{address}: no network interface of this host has the address {resolved}")]
    NotAvailable { address: Address, resolved: SocketAddr },
    #[error("{address}: cannot {what}")]
    Io {
        address: Address,
        what: &'static str,
        #[source]
        source: io::Error,
    },
}
