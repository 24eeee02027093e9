//! How the provider reaches a wrapper: strategies whose product is a byte stream that gRPC rides on.
//!
//! A [`Connector`] is made once from the provider block and cloned freely; it connects to nothing until a [`WrapperClient`]
//! (see [`Connector::client`]) makes its first call. From there downwards:
//!
//! - a strategy turns a [`Target`] into a tunnel: a stream to the wrapper's socket, and a witness who can tell later why it ended;
//! - SSH sessions are shared: one for each (strategy, host, port, user, key), with a channel for each wrapper;
//! - at most 8 handshakes run at once per host, and 64 over all, because sshd turns the others away (`MaxStartups`);
//! - every phase has its limit, and every failure is a [`TransportError`] with the phase, what was tried, the cause and what was seen.
//!
//! Nothing here retries. Whether an error deserves it is [`TransportError::retryable`]; the loop belongs to the callers.
//!
//! [`WrapperClient`]: crate::client::WrapperClient

mod address;
mod error;
mod options;
mod secret;

pub use address::{AddressError, HostPort, SSH_PORT, WrapperAddress};
pub use error::{
    Cause, ChannelRefusal, Evidence, ExpectedKey, HostKeyRefusal, HostKeyVerdict, InvalidOption, KeyError,
    Phase, Route, SharedIoError, TransportError,
};
pub use options::{AgentOptions, JumpOptions, SshOptions, StrategyOptions, TrustOptions};
pub use secret::Secret;

use std::sync::Arc;

/// A runner manager: one entry of the `runner_managers` map.
#[derive(Debug, Clone)]
pub struct Target {
    /// The entry's key, which names the manager in every message.
    pub manager: String,
    /// The name of the instance.
    pub instance_name: String,
    /// The cloud's identifier of the instance, for templates.
    pub instance_id: Option<String>,
    /// Where the host answers SSH.
    pub address: HostPort,
    /// Where the wrapper listens on that host.
    pub wrapper_address: WrapperAddress,
    /// The user, unless the provider block names one.
    pub username: Option<String>,
    /// The text of the private key, unless the provider block names one.
    pub private_key: Option<Secret>,
    /// The key that this host must show: a public key, a `SHA256:` fingerprint, or several, one a line. It replaces every other source
    /// of trust for this host.
    pub host_key: Option<String>,
}

/// Makes clients of wrappers. Cheap to clone; all clones share sessions and limits.
///
/// Dropping the last clone and the last client ends the sessions.
#[derive(Debug, Clone)]
pub struct Connector {
    options: Arc<SshOptions>,
}

impl Connector {
    /// Takes the options over. Reads no file, connects to nothing, and cannot fail: what is wrong with the options shows when a
    /// connection needs them, or before that in [`SshOptions::check`].
    pub fn new(options: SshOptions) -> Self {
        Self { options: Arc::new(options) }
    }

    /// The options it was made from.
    pub fn options(&self) -> &SshOptions {
        &self.options
    }
}
