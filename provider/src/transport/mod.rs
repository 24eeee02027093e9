//! Connections to wrappers. Each connection method returns a byte stream.
//!
//! One [`Connector`] exists for each provider block. It opens no connection before the first call of a client. Then:
//!
//! - a connection method opens a tunnel for a [`Target`]: a stream to the wrapper's socket, and a monitor that reports why it was closed;
//! - SSH sessions are shared: one for each (method, host, port, user, key), with a channel for each wrapper;
//! - at most 8 handshakes run in parallel for each host, and 64 in total, because sshd rejects more (`MaxStartups`). Rejected
//!   handshakes are retried for a third of the connection timeout;
//! - each phase has a time limit, and each failure is a [`TransportError`] with phase, route, cause and observations.
//!
//! Nothing else is retried here: callers retry if [`TransportError::retryable`] allows it. All values are resolved: precedence, defaults and
//! environment variables are decided in `config`.

mod address;
pub(crate) mod check;
mod command;
mod connector;
mod credential_facts;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod handshakes;
mod key_store;
mod limits;
mod pool;
mod reachability;
mod secret;
mod settings;
mod ssh;
mod ssh_command;
mod stream;
mod target;
mod tcp;
mod template;
mod trust;
mod tunnel;
pub(crate) mod user_files;

pub(crate) use address::{AddressError, SSH_PORT};
pub use address::{HostPort, WrapperAddress};
pub(crate) use connector::Connector;
#[cfg(test)]
pub(crate) use credential_facts::KeyProgram;
pub(crate) use credential_facts::OfferedCertificate;
#[cfg(test)]
pub(crate) use error::InvalidOption;
pub(crate) use error::{
    Attribute, ChannelRefusal, ExpectedKey, HostKeyRefusal, KeyError, KeyOrigin, Route, SharedIoError,
    TransportError,
};
pub use error::{Cause, HostKeyVerdict, Phase};
pub(crate) use handshakes::{HANDSHAKES, HANDSHAKES_PER_HOST};
pub(crate) use limits::{CALL_TIMEOUT, CONNECT_TIMEOUT, KEEPALIVE_INTERVAL};
pub(crate) use reachability::Reachability;
pub use secret::Secret;
pub(crate) use settings::{ConnectionMethod, ConnectionSettings, Strategy, TrustSources};
pub(crate) use stream::BoxStream;
pub(crate) use target::{AgentSource, CredentialSource, Hop, KeySource, Login, Selectors, Target, identity};
pub(crate) use tunnel::TunnelMonitor;
pub(crate) use user_files::expand;
