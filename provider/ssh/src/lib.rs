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
//! environment variables are decided by the caller.

mod address;
pub mod check;
pub mod child;
mod command;
mod connector;
mod credential_facts;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod handshakes;
pub mod host_text;
mod key_store;
mod limits;
pub mod open_files;
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
pub mod user_files;

pub use address::{AddressError, HostPort, SSH_PORT, WrapperAddress};
pub use connector::Connector;
pub use credential_facts::{KeyProgram, OfferedCertificate};
pub use error::{
    Attribute, Cause, ChannelRefusal, ExpectedKey, HostKeyRefusal, HostKeyVerdict, InvalidOption, KeyError,
    KeyOrigin, Observations, Phase, Route, SharedIoError, TransportError,
};
pub use handshakes::{HANDSHAKES, HANDSHAKES_PER_HOST};
pub use limits::{CALL_TIMEOUT, CONNECT_TIMEOUT, KEEPALIVE_INTERVAL, Limits};
pub use reachability::Reachability;
pub use secret::Secret;
pub use settings::{ConnectionMethod, ConnectionSettings, Strategy, TrustSources};
pub use stream::{BoxStream, ByteStream, Transcript};
pub use target::{AgentSource, CredentialSource, Hop, KeySource, Login, Selectors, Target, identity};
pub use tunnel::{Tunnel, TunnelMonitor};
pub use user_files::expand;
