//! How the provider reaches a wrapper: strategies whose product is a byte stream that gRPC rides on.
//!
//! A [`Connector`] is made once from the provider block and cloned freely; it connects to nothing until a [`WrapperClient`]
//! (see [`Connector::client`]) makes its first call. From there downwards:
//!
//! - a strategy turns a [`Target`] into a tunnel: a stream to the wrapper's socket, and a witness who can tell later why it ended;
//! - SSH sessions are shared: one for each (strategy, host, port, user, key), with a channel for each wrapper;
//! - at most 8 handshakes run at once per host, and 64 over all, because sshd turns the others away (`MaxStartups`); one that is
//!   turned away all the same is begun again, for a third of the connection's time;
//! - every phase has its limit, and every failure is a [`TransportError`] with the phase, what was tried, the cause and what was seen.
//!
//! Nothing else is tried again here. Whether an error deserves it is [`TransportError::retryable`]; the loop belongs to the callers.
//!
//! [`WrapperClient`]: crate::client::WrapperClient

mod address;
mod check;
mod command;
mod credentials;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod limits;
mod options;
mod over_ssh;
mod pool;
mod proxy_command;
mod proxy_jump;
mod reachability;
mod secret;
mod ssh;
mod ssh_command;
mod stream;
mod tcp;
mod template;
mod trust;
mod user_files;

pub use address::{AddressError, HostPort, SSH_PORT, WrapperAddress};
pub use error::{
    Cause, ChannelRefusal, Evidence, ExpectedKey, HostKeyRefusal, HostKeyVerdict, InvalidOption, KeyError,
    Phase, Route, SharedIoError, TransportError,
};
pub use options::{AgentOptions, JumpOptions, SshOptions, StrategyOptions, TrustOptions};
pub use reachability::Presence;
pub use secret::Secret;

use async_trait::async_trait;
use credentials::Keyring;
use limits::{Deadline, Gate, Limits};
use pool::Pool;
use std::{fmt, sync::Arc, time::Duration};
pub(crate) use stream::BoxStream;
use stream::Transcript;
use template::Template;
use tokio::time::Instant;

/// What a phase may take after its limit to find out why it failed.
const SLACK: Duration = Duration::from_secs(1);

/// Says what is wrong with the keys that a host must show: public keys or fingerprints, one a line.
pub fn check_host_keys(text: &str) -> Result<(), String> {
    trust::HostTrust::check_pins("host_key", text).map_err(|invalid| invalid.problem)
}

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
#[derive(Clone)]
pub struct Connector {
    inner: Arc<Inner>,
}

impl Connector {
    /// Takes the options over. Reads no file, connects to nothing, and cannot fail: what is wrong with the options shows when a
    /// connection needs them, or before that in [`SshOptions::check`].
    pub fn new(options: SshOptions) -> Self {
        let strategy: Box<dyn Strategy> = match &options.strategy {
            StrategyOptions::Direct => Box::new(over_ssh::Direct),
            StrategyOptions::ProxyJump(hops) => Box::new(proxy_jump::ProxyJump(hops.clone())),
            StrategyOptions::ProxyCommand(arguments) => {
                Box::new(proxy_command::ProxyCommand(Template::parse(arguments)))
            }
            StrategyOptions::SshCommand(arguments) => {
                Box::new(ssh_command::SshCommand(Template::parse(arguments)))
            }
        };
        let limits = Limits::new(options.connect_timeout, options.call_timeout, options.keepalive_interval);
        let gate = Gate::new(options.max_handshakes);
        let (pool, keyring) = (Pool::default(), Keyring::default());
        Self { inner: Arc::new(Inner { options, limits, gate, pool, keyring, strategy }) }
    }

    /// The options it was made from.
    pub fn options(&self) -> &SshOptions {
        &self.inner.options
    }

    /// A tunnel to the wrapper of a manager. One deadline bounds the whole: queueing, hops, logins and channels. It is the end of the
    /// operation that needs the tunnel, or the connection's own limit.
    pub(crate) async fn open(
        &self,
        target: &Target,
        operation: Option<Instant>,
    ) -> Result<Tunnel, TransportError> {
        let deadline = self.inner.limits.deadline(operation);
        let opening = self.inner.strategy.open(&self.inner, target, deadline);
        // Each phase ends at the deadline by itself, and says so. What remains is a wait for another caller's attempt, or for a file.
        tokio::time::timeout_at(deadline.end() + SLACK, opening).await.unwrap_or_else(|_| {
            let route = Route::of(target, self.inner.strategy.name());
            let limit = deadline.whole();
            Err(TransportError::at(Phase::Setup, route, Cause::TimedOut { limit }))
        })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.inner.limits
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("strategy", &self.inner.strategy.name()).finish_non_exhaustive()
    }
}

/// What all clones of a connector share.
pub(crate) struct Inner {
    options: SshOptions,
    limits: Limits,
    gate: Gate,
    pool: Pool,
    keyring: Keyring,
    strategy: Box<dyn Strategy>,
}

/// A way to a wrapper. Its product is a byte stream that gRPC rides on.
#[async_trait]
trait Strategy: Send + Sync {
    /// The name in options and messages.
    fn name(&self) -> &'static str;

    /// Opens a tunnel. Dropping the future abandons it.
    async fn open(
        &self,
        inner: &Arc<Inner>,
        target: &Target,
        deadline: Deadline,
    ) -> Result<Tunnel, TransportError>;
}

/// A stream to a wrapper, and somebody who watches it.
pub(crate) struct Tunnel {
    pub(crate) stream: BoxStream,
    pub(crate) witness: Arc<dyn Witness>,
}

/// Watches a tunnel, keeps what carries it alive, and tells afterwards why it broke.
///
/// gRPC knows only that its stream has ended; the reason is with the session, the command, or in the first bytes received.
#[async_trait]
pub(crate) trait Witness: Send + Sync {
    /// Why the tunnel broke, or none when it did not. May wait a moment for the reason to arrive.
    async fn testimony(&self) -> Option<TransportError>;

    /// What it means that a call was not answered within its limit, where that is known better than "the wrapper does not answer".
    fn silence(&self, _limit: Duration) -> Option<TransportError> {
        None
    }

    /// How much longer than its limit a call may take now, because the way to the wrapper is not open yet.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// What was received from the wrapper.
    fn transcript(&self) -> &Transcript;

    /// Where it leads.
    fn route(&self) -> &Route;
}

/// What the wrapper's side of a standing tunnel tells: that it was closed, or that it is no gRPC server.
fn wrapper_side(transcript: &Transcript, route: &Route) -> Option<TransportError> {
    let received = transcript.first();
    let cause = if !received.is_empty() && !begins_http2(&received) {
        Cause::NotAWrapper
    } else if transcript.is_closed() {
        Cause::WrapperClosed
    } else {
        return None;
    };
    let mut error = TransportError::at(Phase::Call, route.clone(), cause);
    if matches!(error.cause, Cause::NotAWrapper) {
        error.evidence.received = received;
    }
    Some(error)
}

/// Every HTTP/2 server begins with a SETTINGS frame on stream 0: length (3 bytes), type 4, flags, stream (4 bytes).
fn begins_http2(received: &[u8]) -> bool {
    received.iter().skip(3).zip([4, 0, 0, 0, 0, 0]).all(|(byte, expected)| *byte == expected)
}

impl Route {
    fn of(target: &Target, strategy: &'static str) -> Self {
        Self {
            strategy,
            host: target.address.clone(),
            username: None,
            wrapper: target.wrapper_address.clone(),
            hop: None,
            onward: None,
            onward_hop: None,
        }
    }
}
