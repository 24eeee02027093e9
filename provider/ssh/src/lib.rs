//! A byte stream to an address on a host behind SSH, by four strategies.
//!
//! A [`Connector`] opens a [`Tunnel`] to the wrapper's address of a [`Target`]: a Unix socket or a TCP port that only the host itself can
//! reach. The [`Strategy`] is chosen once, for all targets:
//!
//! | strategy | the stream |
//! | --- | --- |
//! | [`Strategy::Direct`] | a channel of an SSH session over TCP |
//! | [`Strategy::ProxyJump`] | a channel of an SSH session over a channel of a jump host's session |
//! | [`Strategy::ProxyCommand`] | a channel of an SSH session over the standard input and output of a command |
//! | [`Strategy::SshCommand`] | the standard input and output of a command, which has its own login and trust |
//!
//! # Example
//!
//! ```no_run
//! use grit_ssh::{AgentSource, ConnectionSettings, Connector, CredentialSource, Login, Target, TrustSources};
//! use tokio::io::AsyncWriteExt as _;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let trust = TrustSources { known_hosts_files: vec!["/etc/ssh/ssh_known_hosts".into()], ..TrustSources::default() };
//! let connector = Connector::new(ConnectionSettings { trust, ..ConnectionSettings::default() });
//! let agent = AgentSource { socket: Some("/run/user/1000/ssh-agent".into()), identity: None };
//! let credentials = Some(CredentialSource { agent: Some(agent), ..CredentialSource::default() });
//! let target = Target {
//!     manager: "blue".to_owned(),
//!     instance_name: "runner-1".to_owned(),
//!     instance_id: None,
//!     address: "runner-1.example.com:22".parse()?,
//!     wrapper_address: "unix:///run/wrapper.sock".parse()?,
//!     login: Login { username: Some("deploy".to_owned()), credentials },
//!     host_key: None,
//!     hops: Vec::new(),
//! };
//! let mut tunnel = connector.open(&target, None).await?;
//! tunnel.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
//! tunnel.monitor.first_byte().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - Nothing is opened before the first [`Connector::open`]. Dropping the last connector and tunnel ends sessions and commands.
//! - SSH sessions are shared: one for each strategy, address, user, credentials and pinned host key, with a channel for each tunnel. A session
//!   that has ended is replaced. After a refused Unix socket, the next caller logs in again: the groups of the user may have changed.
//! - At most 8 handshakes run in parallel for each host, and 64 in total, because sshd rejects more (`MaxStartups`). Rejected handshakes are
//!   retried for a third of the connection timeout. Nothing else is retried: [`TransportError::retryable`] is whether a retry can help.
//! - One deadline limits queue, jump hosts, logins, channel and first byte. Each phase also has a separate limit.
//! - A tunnel is open when the first byte was received. Data that is sent only after that was not sent if opening the tunnel fails.
//! - A host key is accepted by the rules of OpenSSH, or not at all. An unknown key is an error with its fingerprint.
//! - Each failure is a [`TransportError`]: phase, [`Route`], [`Cause`] and what was received. [`TransportError::reachability`] is what it shows
//!   about the host. No error contains a part of a key or a passphrase.
//!
//! All values are resolved: precedence, defaults and environment variables are decided by the caller.
//!
//! # Interface
//!
//! - Values: [`Target`] with [`Login`], [`CredentialSource`] and [`Hop`]; [`HostPort`], [`WrapperAddress`], [`Secret`];
//!   [`ConnectionSettings`] with [`Strategy`] and [`TrustSources`]. [`Selectors`]: which values select the host besides the address.
//! - Connections: [`Connector`], [`Tunnel`], [`TunnelMonitor`].
//! - Errors: [`TransportError`], and one type for each subject: [`KeyError`], [`HostKeyRefusal`], [`CommandError`], [`InvalidOption`],
//!   [`AddressError`].
//! - [`check`]: checks of values without a connection.
//! - For other programs that run commands or read files of users: [`child`], [`open_files`], [`user_files`], [`host_text`],
//!   [`SECRET_VARIABLES`].

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
pub use command::{SECRET_VARIABLES, child, error::CommandError, open_files};
pub use connect::{
    Connector,
    handshakes::{HANDSHAKES, HANDSHAKES_PER_HOST},
    reachability::{Confirmation, Reachability},
    settings::{ConnectionSettings, Strategy},
    tunnel::{Tunnel, TunnelMonitor},
};
pub use error::{Cause, ChannelRefusal, Observations, OfferedCertificate, Peer, TransportError};
pub use io_error::SharedIoError;
pub use keys::error::KeyError;
pub use limits::{CALL_TIMEOUT, CONNECT_TIMEOUT, KEEPALIVE_INTERVAL, Limits};
pub use route::{ConnectionMethod, Phase, Route};
pub use secret::Secret;
pub use session::is_unknown_name;
pub use stream::{BoxStream, ByteStream};
pub use target::{AgentSource, CredentialSource, Hop, KeySource, Login, Selectors, Target};
pub use trust::{
    refusal::{ExpectedKey, HostKeyRefusal, HostKeyVerdict, KeyOrigin},
    sources::TrustSources,
};
pub use user_files::expand;
