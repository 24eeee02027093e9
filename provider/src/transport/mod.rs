//! How the provider reaches a wrapper: connection methods whose product is a byte stream that gRPC rides on.
//!
//! A [`Connector`] is made once from the provider block and cloned freely; it connects to nothing until a client makes its first call. From
//! there downwards:
//!
//! - a connection method turns a [`Target`] into a tunnel: a stream to the wrapper's socket, and a monitor that knows why it closed;
//! - SSH sessions are shared: one for each (method, host, port, user, key), with a channel for each wrapper;
//! - at most 8 handshakes run at once per host, and 64 over all, because sshd refuses the others (`MaxStartups`); one that is refused
//!   all the same is begun again, for a third of the connection's time;
//! - every phase has its limit, and every failure is a [`TransportError`] with the phase, what was tried, the cause and what was seen.
//!
//! Nothing else is tried again here. Whether an error deserves it is [`TransportError::retryable`]; the loop belongs to the callers.
//! All values are resolved before they come here: precedence, defaults and environment variables are decided in `config`.

mod address;
pub(crate) mod check;
mod command;
mod connector;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod handshakes;
mod key_store;
mod limits;
mod pool;
mod proxy_command;
mod proxy_jump;
mod reachability;
mod secret;
mod settings;
mod shared;
mod ssh;
mod ssh_command;
mod ssh_tunnel;
mod stream;
mod target;
mod tcp;
mod template;
mod trust;
mod tunnel;
mod user_files;

pub(crate) use address::{AddressError, SSH_PORT};
pub use address::{HostPort, WrapperAddress};
pub(crate) use connector::Connector;
#[cfg(test)]
pub(crate) use error::InvalidOption;
pub(crate) use error::{
    Attribute, ChannelRefusal, ExpectedKey, HostKeyRefusal, KeyError, KeyOrigin, Route, SharedIoError,
    TransportError,
};
pub use error::{Cause, HostKeyVerdict, Phase};
pub(crate) use reachability::Reachability;
pub use secret::Secret;
pub(crate) use settings::{ConnectionMethod, ConnectionSettings, Strategy, TrustSources};
pub(crate) use stream::BoxStream;
pub(crate) use target::{AgentSource, CredentialSource, Hop, KeySource, Login, Target};
pub(crate) use tunnel::TunnelMonitor;
pub(crate) use user_files::expand;
