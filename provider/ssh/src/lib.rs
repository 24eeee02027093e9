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
mod attribute;
pub mod check;
mod command;
mod connect;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod host_text;
mod io_error;
mod keys;
mod limits;
mod parent;
mod route;
mod secret;
mod session;
mod stream;
mod target;
mod trust;
pub mod user_files;

pub use address::{AddressError, HostPort, SSH_PORT, WrapperAddress};
pub use attribute::{Attribute, InvalidOption};
pub use command::{child, error::CommandError, open_files};
pub use connect::{
    Connector,
    handshakes::{HANDSHAKES, HANDSHAKES_PER_HOST},
    reachability::Reachability,
    settings::{ConnectionSettings, Strategy},
    tunnel::{Tunnel, TunnelMonitor},
};
pub use error::{Cause, ChannelRefusal, Observations, OfferedCertificate, Peer, TransportError};
pub use io_error::SharedIoError;
pub use keys::error::KeyError;
pub use limits::{CALL_TIMEOUT, CONNECT_TIMEOUT, KEEPALIVE_INTERVAL, Limits};
pub use route::{ConnectionMethod, Phase, Route};
pub use secret::Secret;
pub use stream::{BoxStream, ByteStream};
pub use target::{AgentSource, CredentialSource, Hop, KeySource, Login, Selectors, Target, identity};
pub use trust::{
    refusal::{ExpectedKey, HostKeyRefusal, HostKeyVerdict, KeyOrigin},
    sources::TrustSources,
};
pub use user_files::expand;
