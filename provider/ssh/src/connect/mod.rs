//! From a runner manager to a tunnel to its wrapper: the connection method, the shared SSH session, and a channel of it.

pub(crate) mod handshakes;
mod pool;
pub(crate) mod reachability;
pub(crate) mod settings;
mod ssh_command;
mod tcp;
pub(crate) mod tunnel;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;
use tokio::time::Instant;

use self::{
    handshakes::HandshakeLimiter,
    pool::{Connecting, SessionPool, SessionRef},
    settings::{ConnectionSettings, Strategy},
    tunnel::{Tunnel, TunnelMonitor},
};
use crate::{
    address::WrapperAddress,
    attribute::{Attribute, InvalidOption},
    command::{self, template},
    error::{Cause, Peer, TransportError},
    keys::store::KeyStore,
    limits::{Deadline, Limits},
    parent::ParentTransport,
    route::{Phase, Route},
    session::{Session, SessionKey, SessionSpec, Via},
    stream::{BoxStream, Transcript},
    target::{CredentialSource, Hop, Selectors, Target},
    trust::{HostTrust, Pinned, sources::TrustSources},
};

/// Time for a phase to report its error after the deadline.
const ERROR_GRACE: Duration = Duration::from_secs(1);

/// Opens tunnels to wrappers. Clones share sessions and limits.
///
/// Dropping the last clone and the last client closes the sessions.
#[derive(Clone)]
pub struct Connector(Arc<Inner>);

struct Inner {
    strategy: Strategy,
    selectors: Selectors,
    trust: TrustSources,
    limits: Limits,
    handshakes: HandshakeLimiter,
    sessions: SessionPool,
    keys: KeyStore,
}

impl Connector {
    /// Reads no file, and opens no connection. Invalid settings are reported when a connection needs them.
    pub fn new(settings: ConnectionSettings) -> Self {
        Self(Arc::new(Inner {
            selectors: settings.strategy.selectors(),
            strategy: settings.strategy,
            trust: settings.trust,
            limits: Limits::new(settings.connect_timeout, settings.call_timeout, settings.keepalive_interval),
            handshakes: HandshakeLimiter::new(settings.max_handshakes),
            sessions: SessionPool::default(),
            keys: KeyStore::default(),
        }))
    }

    /// What selects the host of a connection besides the addresses.
    pub fn selectors(&self) -> Selectors {
        self.0.selectors
    }

    /// The time limits of connections and calls.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// A tunnel to the wrapper of a runner manager. One deadline limits everything, from the queue to the channel: `operation`, the end of
    /// the operation that needs the tunnel, or the connection timeout.
    pub async fn open(&self, target: &Target, operation: Option<Instant>) -> Result<Tunnel, TransportError> {
        let deadline = self.0.limits.deadline(operation);
        let method = self.0.strategy.method();
        let opening = async {
            // The session of a jump host stays open until the tunnel is open.
            let (via, _jump_host) = match &self.0.strategy {
                Strategy::Direct => (Via::Tcp, None),
                Strategy::ProxyJump => self.jump(target, deadline).await?,
                Strategy::ProxyCommand(arguments) => {
                    (Via::Command(template::expand(arguments, target, method)?), None)
                }
                Strategy::SshCommand(arguments) => {
                    return ssh_command::open(&self.0.handshakes, target, arguments, deadline).await;
                }
            };
            let spec = self.spec(target, None, via).await?;
            self.channel(target, &spec, deadline).await
        };
        // Each phase ends at the deadline and reports it. This limits the wait for another caller's attempt, or for a file.
        let opened = tokio::time::timeout_at(deadline.end() + ERROR_GRACE, Box::pin(opening)).await;
        let opened = opened.unwrap_or_else(|_| {
            let cause = Cause::TimedOut { limit: deadline.whole() };
            Err(TransportError::at(Phase::Setup, target.route(method), cause))
        });
        // The attempt may have been started for another wrapper behind the same session.
        opened.map_err(|error| error.for_wrapper(&target.wrapper_address))
    }

    /// The session of the last jump host, through those before it. Each has its own user, key and host key. All managers behind it share
    /// its session.
    async fn jump(
        &self,
        target: &Target,
        deadline: Deadline,
    ) -> Result<(Via, Option<SessionRef>), TransportError> {
        let (mut via, mut last) = (Via::Tcp, None);
        for (index, hop) in target.hops.iter().enumerate() {
            let spec = self.spec(target, Some((index, hop)), via).await?;
            let session = self.0.sessions.session(&spec.key, || self.connect(&spec, deadline)).await?;
            via = Via::Session(session.shared(), Box::new(spec.key.clone()));
            // Keeps the session of the previous jump host open until here.
            last = Some(session);
        }
        Ok((via, last))
    }

    /// The session to the runner manager, or to the jump host with this index.
    async fn spec(
        &self,
        target: &Target,
        hop: Option<(usize, &Hop)>,
        via: Via,
    ) -> Result<Arc<SessionSpec>, TransportError> {
        let (address, login, host_key, attribute) = match hop {
            Some((index, hop)) => {
                (&hop.address, &hop.login, &hop.host_key, Attribute::Hop(index, "host_key"))
            }
            None => (&target.address, &target.login, &target.host_key, Attribute::Manager("host_key")),
        };
        let hop = hop.map(|(index, _)| index + 1);
        let mut route = Route { host: address.clone(), hop, ..target.route(self.0.strategy.method()) };
        let identity = match self.0.keys.load(login).await {
            Ok(identity) => identity,
            Err(cause) => return Err(TransportError::at(Phase::Setup, route, cause)),
        };
        route.username = Some(identity.username.clone());
        let key = SessionKey {
            via: via.key(),
            address: address.clone(),
            username: identity.username,
            identity: identity.name,
            host_key: host_key.clone().map(|keys| Pinned { attribute, keys }),
        };
        let key_file = login.credentials.as_ref().and_then(CredentialSource::key_file).map(Path::to_owned);
        Ok(Arc::new(SessionSpec { key, via, credentials: identity.credentials, key_file, route }))
    }

    /// A channel to the wrapper, of the shared session. If that session has ended unnoticed, a new one is opened, once.
    async fn channel(
        &self,
        target: &Target,
        spec: &Arc<SessionSpec>,
        deadline: Deadline,
    ) -> Result<Tunnel, TransportError> {
        let mut may_repeat = true;
        loop {
            let session = self.0.sessions.session(&spec.key, || self.connect(spec, deadline)).await?;
            match session.open(&target.wrapper_address, deadline).await {
                Ok((stream, transcript)) => {
                    let limit = deadline.cap(self.0.limits.channel);
                    let monitor = SshMonitor { session, transcript, route: spec.route.clone(), limit };
                    return Ok(Tunnel { stream, monitor: Arc::new(monitor) });
                }
                Err(error) if may_repeat && session.reused && error.is_end_of_session() => {
                    may_repeat = false;
                    tracing::debug!(manager = target.manager, error = %error, "a shared SSH session was closed; opening a new session");
                }
                Err(error) => {
                    if matches!(
                        (&target.wrapper_address, &error.cause),
                        (WrapperAddress::Unix(_), Cause::ChannelRefused { .. })
                    ) {
                        self.0.sessions.socket_refused(&spec.key, &session);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Opens a session. Retries while the server rejects connections because of too many logins.
    fn connect(&self, spec: &Arc<SessionSpec>, deadline: Deadline) -> Connecting {
        let (connector, spec) = (self.clone(), Arc::clone(spec));
        let connecting = async move {
            let mut pauses = connector.0.limits.busy_pauses();
            loop {
                let error = match connector.login(&spec, deadline).await {
                    Err(error) if matches!(error.cause, Cause::TooBusy) => error,
                    done => return done,
                };
                let Some(pause) = pauses.next().filter(|pause| *pause < deadline.left()) else {
                    return Err(error);
                };
                tracing::debug!(host = %spec.route.host, delay = ?pause, "SSH server rejected the connection; retrying");
                tokio::time::sleep(pause).await;
            }
        };
        connecting.boxed()
    }

    /// Logs in once, as soon as the handshake limiter permits it.
    async fn login(
        &self,
        spec: &Arc<SessionSpec>,
        deadline: Deadline,
    ) -> Result<Arc<Session>, TransportError> {
        let failed = |cause| TransportError::at(Phase::Setup, spec.route.clone(), cause);
        let _permit = self.0.handshakes.enter(&spec.route.host, deadline).await.map_err(failed)?;
        let trust = self.gather_trust(spec).await;
        let mut trust = trust.map_err(|problem| failed(Cause::Option(problem)))?;
        let mut refused = None;
        loop {
            let (stream, parent) = open_stream(spec, &self.0.limits, deadline).await?;
            let (trusted, limits) = (trust.clone(), self.0.limits.clone());
            let error = match Session::establish(stream, parent, spec, trusted, limits, deadline).await {
                Ok(session) => return Ok(Arc::new(session)),
                Err(error) => error,
            };
            match &error.cause {
                Cause::HostKey(refusal) if trust.exclude(refusal) => {
                    tracing::debug!(host = %spec.route.host, key_type = refusal.key_type, "reconnecting with another host key type");
                    refused.get_or_insert(error);
                }
                // The host has no further key types. The error is about its first key.
                Cause::NoCommonAlgorithm { .. } => return Err(refused.unwrap_or(error)),
                _ => return Err(error),
            }
        }
    }

    /// The trusted keys of the host. Files are read in a blocking thread.
    async fn gather_trust(&self, spec: &Arc<SessionSpec>) -> Result<HostTrust, InvalidOption> {
        let (connector, spec) = (self.clone(), Arc::clone(spec));
        let reads_no_file = HostTrust::needs_no_file(&self.0.trust);
        let gather =
            move || HostTrust::gather(&connector.0.trust, spec.key.host_key.as_ref(), &spec.route.host);
        if reads_no_file {
            return gather();
        }
        tokio::task::spawn_blocking(gather).await.unwrap_or_else(|error| {
            Err(InvalidOption::new(Attribute::Ssh("known_hosts_path"), error.to_string()))
        })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("method", &self.0.strategy.method()).finish_non_exhaustive()
    }
}

/// The stream to the SSH server, and what it runs through.
async fn open_stream(
    spec: &SessionSpec,
    limits: &Limits,
    deadline: Deadline,
) -> Result<(BoxStream, Option<Arc<dyn ParentTransport>>), TransportError> {
    let address = &spec.route.host;
    let failed = |phase| move |cause| TransportError::at(phase, spec.route.clone(), cause);
    match &spec.via {
        Via::Tcp => {
            let connected = tcp::connect(address, limits.tcp, deadline).await;
            let stream = connected.map_err(failed(Phase::Tcp))?;
            Ok((Box::new(stream), None))
        }
        Via::Command(arguments) => {
            let (stream, running) = command::spawn(arguments).map_err(failed(Phase::Command))?;
            Ok((Box::new(stream), Some(running)))
        }
        Via::Session(jump_host, _) => {
            let opened = jump_host.open(&WrapperAddress::Tcp(address.clone()), deadline).await;
            let (stream, _) = opened.map_err(|mut error| {
                error.route.onward = Some(address.clone());
                error.route.onward_hop = spec.route.hop;
                error
            })?;
            Ok((stream, Some(Arc::clone(jump_host) as Arc<dyn ParentTransport>)))
        }
    }
}

struct SshMonitor {
    session: SessionRef,
    transcript: Transcript,
    route: Route,
    /// For the first byte.
    limit: Duration,
}

#[async_trait]
impl TunnelMonitor for SshMonitor {
    async fn close_reason(&self) -> Option<TransportError> {
        if let Some(error) = self.session.close_reason(Phase::Call).await {
            return Some(TransportError { route: Box::new(self.route.clone()), ..error });
        }
        tunnel::wrapper_error(&self.transcript, &self.route)
    }

    async fn first_byte(&self) -> Result<(), TransportError> {
        let received = tokio::time::timeout(self.limit, self.transcript.changed()).await;
        received.map_err(|_| {
            let cause = Cause::NoResponse { from: Peer::Wrapper, limit: self.limit };
            TransportError::at(Phase::Channel, self.route.clone(), cause)
        })
    }

    fn route(&self) -> &Route {
        &self.route
    }
}
