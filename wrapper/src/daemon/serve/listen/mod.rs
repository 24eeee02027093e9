//! Listeners. Addresses use upstream's syntax, and binding never disturbs a running wrapper.

mod address;
mod error;
mod listener;
mod lost_sockets;
mod tcp;
mod unix;

pub use self::{
    address::{Address, AddressError},
    error::ListenError,
    listener::{Listener, Rules},
    lost_sockets::LostSockets,
    unix::{SocketAccess, UnixSocket},
};
pub use crate::supervise::lock_wait::LockOwner;

/// The default of --grpc-listen. GRIT's modules use this path for the upstream wrapper. The upstream default, tcp://localhost:7777, would let
/// every local process stop the runner, CI jobs included.
pub const DEFAULT_ADDRESS: &str = "unix:///var/run/gitlab-runner-wrapper.sock";

/// Listens on `address`. A stale socket is replaced; a socket in use is not changed. If its wrapper was killed and is still terminating,
/// this waits up to 2 s.
/// After an error, no socket or file is left behind.
pub async fn bind(address: &Address, rules: &Rules) -> Result<Listener, ListenError> {
    match address {
        Address::Unix(path) => unix::bind(address, path, &rules.access).await.map(Listener::Unix),
        Address::Tcp(host) => tcp::bind(address, host, rules).await.map(Listener::Tcp),
    }
}
