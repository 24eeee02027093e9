//! The strategies that speak SSH themselves: what differs is what carries the connection to the server.

use crate::transport::{
    HostPort, Inner, Phase, Route, Strategy, Target, TransportError, Tunnel, Witness, WrapperAddress,
    command,
    credentials::Identity,
    error::{Cause, Evidence, InvalidOption},
    limits::Deadline,
    pool::{Lease, SessionKey},
    ssh::{Carrier, Login, Session},
    stream::{BoxStream, Transcript},
    tcp,
    trust::{HostTrust, Pinned},
};
use async_trait::async_trait;
use futures::FutureExt;
use std::sync::Arc;

/// A session to ask for.
pub(crate) struct Ask {
    pub(crate) route: Route,
    pub(crate) identity: Identity,
    pub(crate) host_key: Option<Pinned>,
}

/// What carries the connection to an SSH server.
#[derive(Clone)]
pub(crate) enum Way {
    Direct,
    /// The standard input and output of a command.
    Command(Vec<String>),
    /// A channel of another session, which `key` names.
    Through {
        bastion: Arc<Session>,
        key: String,
    },
}

/// `direct`: a TCP connection to the manager's address.
#[derive(Debug)]
pub(crate) struct Direct;

#[async_trait]
impl Strategy for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    async fn open(
        &self,
        inner: &Arc<Inner>,
        target: &Target,
        deadline: Deadline,
    ) -> Result<Tunnel, TransportError> {
        let ask = target_ask(inner, target, self.name()).await?;
        tunnel(inner, target, ask, &Way::Direct, deadline).await
    }
}

/// The session that a manager itself is asked for.
pub(crate) async fn target_ask(
    inner: &Inner,
    target: &Target,
    strategy: &'static str,
) -> Result<Ask, TransportError> {
    let route = Route::of(target, strategy);
    match inner.keyring.of_target(&inner.options, target).await {
        Ok(identity) => Ok(Ask {
            route: Route { username: Some(identity.username.clone()), ..route },
            identity,
            host_key: target.host_key.clone().map(|keys| Pinned { attribute: "host_key".to_owned(), keys }),
        }),
        Err(cause) => Err(TransportError::at(Phase::Setup, route, cause)),
    }
}

/// A session, and a channel to the wrapper on it. A shared session may have died unnoticed; then a new one is tried, once.
pub(crate) async fn tunnel(
    inner: &Arc<Inner>,
    target: &Target,
    ask: Ask,
    way: &Way,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let (key, route) = (ask.key(way), ask.route.clone());
    if let Some(lease) = inner.pool.open_session(&key) {
        match channel(target, lease, &route, deadline).await {
            Err(error) if error.is_end_of_session() => {
                tracing::debug!(manager = target.manager, %error, "a shared SSH session was closed; opening a new session");
            }
            done => return done,
        }
    }
    let lease = session(inner, ask, way, deadline).await.map_err(|error| error.for_target(target))?;
    channel(target, lease, &route, deadline).await
}

/// The shared session of this ask, made when there is none.
pub(crate) async fn session(
    inner: &Arc<Inner>,
    ask: Ask,
    way: &Way,
    deadline: Deadline,
) -> Result<Lease, TransportError> {
    let key = ask.key(way);
    let (connecting, way) = (Arc::clone(inner), way.clone());
    inner.pool.session(&key, || connect(connecting, ask, way, deadline).boxed()).await
}

async fn channel(
    target: &Target,
    lease: Lease,
    route: &Route,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let opened = lease.open(&target.wrapper_address, deadline).await;
    let (stream, transcript) = opened.map_err(|error| error.for_target(target))?;
    let witness = SshWitness { lease, transcript, route: route.clone() };
    Ok(Tunnel { stream, witness: Arc::new(witness) })
}

/// A new session. A server that turns us away has too many logins under way, others' or ours that it has not put away yet, and is
/// asked again while that makes sense.
async fn connect(
    inner: Arc<Inner>,
    ask: Ask,
    way: Way,
    deadline: Deadline,
) -> Result<Arc<Session>, TransportError> {
    let mut patience = inner.limits.patience();
    loop {
        match login(&inner, &ask, &way, deadline).await {
            Err(error) if matches!(error.cause, Cause::TooBusy) => {
                match patience.next().filter(|pause| *pause < deadline.left()) {
                    Some(pause) => {
                        tracing::debug!(host = %ask.route.host, ?pause, "SSH server rejected the connection; retrying");
                        tokio::time::sleep(pause).await;
                    }
                    None => return Err(error),
                }
            }
            done => return done,
        }
    }
}

/// One login, in its turn.
async fn login(
    inner: &Arc<Inner>,
    ask: &Ask,
    way: &Way,
    deadline: Deadline,
) -> Result<Arc<Session>, TransportError> {
    let Ask { route, identity, host_key } = ask;
    let turn = inner.gate.enter(&route.host, deadline).await;
    let turn = turn.map_err(|cause| TransportError::at(Phase::Setup, route.clone(), cause))?;
    let mut trust = gather_trust(inner, host_key.clone(), &route.host)
        .await
        .map_err(|problem| TransportError::at(Phase::Setup, route.clone(), Cause::Option(problem)))?;
    let mut refused = None;
    loop {
        let login = Login {
            username: identity.username.clone(),
            credentials: identity.credentials.clone(),
            trust: trust.clone(),
            limits: inner.limits.clone(),
            route: route.clone(),
        };
        let (stream, carrier) = carry(inner, route, way, deadline).await?;
        let error = match Session::establish(stream, carrier, login, deadline).await {
            Ok(session) => return Ok(Arc::new(session.unsettled(turn.only_at_host()))),
            Err(error) => error,
        };
        match &error.cause {
            Cause::HostKey(refusal) if trust.exclude(refusal) => {
                tracing::debug!(host = %route.host, key_type = refusal.key_type, "reconnecting with another host key type");
                refused.get_or_insert(error);
            }
            // The host has no further types: the first one that it showed is the one to speak of.
            Cause::NoCommonAlgorithm { .. } => return Err(refused.unwrap_or(error)),
            _ => return Err(error),
        }
    }
}

/// A stream to an SSH server.
async fn carry(
    inner: &Inner,
    route: &Route,
    way: &Way,
    deadline: Deadline,
) -> Result<(BoxStream, Option<Arc<dyn Carrier>>), TransportError> {
    Ok(match way {
        Way::Direct => {
            let limit = deadline.cap(inner.limits.tcp);
            let connected = tokio::time::timeout(limit, tcp::connect(&route.host)).await;
            let stream = connected
                .unwrap_or(Err(Cause::TimedOut { limit }))
                .map_err(|cause| TransportError::at(Phase::Tcp, route.clone(), cause))?;
            (Box::new(stream), None)
        }
        Way::Command(arguments) => {
            let (stream, running) = command::spawn(arguments)
                .map_err(|cause| TransportError::at(Phase::Command, route.clone(), cause))?;
            (Box::new(stream), Some(running))
        }
        Way::Through { bastion, .. } => {
            let to = WrapperAddress::Tcp(route.host.clone());
            let (stream, _) = bastion.open(&to, deadline).await.map_err(|mut error| {
                error.route.onward = Some(route.host.clone());
                error.route.onward_hop = route.hop;
                error
            })?;
            (stream, Some(Arc::clone(bastion) as Arc<dyn Carrier>))
        }
    })
}

/// What is known of a host's key; files are read off the async threads.
async fn gather_trust(
    inner: &Arc<Inner>,
    host_key: Option<Pinned>,
    host: &HostPort,
) -> Result<HostTrust, InvalidOption> {
    let at_hand = HostTrust::is_at_hand(&inner.options.trust);
    let (inner, host) = (Arc::clone(inner), host.clone());
    let gather = move || {
        let options = &inner.options;
        HostTrust::gather(&options.trust, options.home.as_deref(), host_key.as_ref(), &host)
    };
    if at_hand {
        return gather();
    }
    tokio::task::spawn_blocking(gather).await.unwrap_or_else(|error| {
        Err(InvalidOption { attribute: "ssh.known_hosts_path".to_owned(), problem: error.to_string() })
    })
}

impl Ask {
    pub(crate) fn key(&self, way: &Way) -> SessionKey {
        SessionKey {
            way: match way {
                Way::Direct => "direct".to_owned(),
                Way::Command(arguments) => format!("{arguments:?}"),
                Way::Through { key, .. } => key.clone(),
            },
            host: self.route.host.clone(),
            username: self.identity.username.clone(),
            identity: self.identity.name.clone(),
            host_key: self.host_key.clone(),
        }
    }
}

/// Tells why a tunnel over SSH broke: with its session, or on the wrapper's side of it.
struct SshWitness {
    lease: Lease,
    transcript: Transcript,
    route: Route,
}

#[async_trait]
impl Witness for SshWitness {
    async fn testimony(&self) -> Option<TransportError> {
        if let Some(error) = self.lease.testimony(Phase::Call).await {
            return Some(TransportError { route: Box::new(self.route.clone()), ..error });
        }
        crate::transport::wrapper_side(&self.transcript, &self.route)
    }

    fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    fn route(&self) -> &Route {
        &self.route
    }
}

impl TransportError {
    /// An error of which nothing more is known.
    pub(crate) fn at(phase: Phase, route: Route, cause: Cause) -> Self {
        Self { phase, route: Box::new(route), cause, evidence: Box::new(Evidence::default()) }
    }

    /// The same error for another manager behind the same session.
    pub(crate) fn for_target(mut self, target: &Target) -> Self {
        self.route.wrapper = target.wrapper_address.clone();
        self
    }

    /// Whether the session that met it is of no more use.
    fn is_end_of_session(&self) -> bool {
        matches!(self.cause, Cause::Lost(_) | Cause::NotAnswering { .. })
    }
}
