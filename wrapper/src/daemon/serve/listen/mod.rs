//! Listeners. Addresses use upstream's syntax, and binding never disturbs a running wrapper.

mod address;
mod error;
mod kept;
mod listener;
mod socket_activation;
mod tcp;
mod unbound;
mod unix;

pub use self::{
    address::{Address, AddressError, Source},
    error::ListenError,
    kept::KeptSockets,
    listener::{Listener, Rules},
    socket_activation::{InheritedSockets, PassedError},
    unbound::Unbound,
    unix::{SocketAccess, UnixSocket},
};
pub use crate::supervise::lock_wait::LockOwner;

/// The default of --grpc-listen. GRIT's modules use this path for the upstream wrapper. The upstream default, tcp://localhost:7777, would let
/// every local process stop the runner, CI jobs included.
pub const DEFAULT_ADDRESS: &str = "unix:///var/run/gitlab-runner-wrapper.sock";

/// Takes the socket that stayed open during an upgrade, or listens on `address`.
pub async fn open_address(
    address: &Address,
    rules: &Rules,
    passed: &mut InheritedSockets,
) -> Result<Listener, ListenError> {
    match passed.take_kept(address, rules) {
        Some(kept) => kept,
        None => bind(address, rules).await,
    }
}

/// Listens on `address`. A stale socket is replaced; a socket in use is not changed. If its wrapper was killed and is still terminating,
/// this waits up to 2 s.
/// After an error, no socket or file is left behind.
pub async fn bind(address: &Address, rules: &Rules) -> Result<Listener, ListenError> {
    match address {
        Address::Unix(path) => unix::bind(address, path, &rules.access).await.map(Listener::Unix),
        Address::Tcp(host) => tcp::bind(address, host, rules).await.map(Listener::Tcp),
    }
}
