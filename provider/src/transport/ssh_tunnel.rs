//! A tunnel over SSH: a session, shared or new, and a channel on it to the wrapper.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;

use crate::transport::{
    address::{HostPort, WrapperAddress},
    command,
    error::{Attribute, Cause, InvalidOption, Phase, Route, TransportError},
    limits::Deadline,
    pool::SessionRef,
    settings::ConnectionMethod,
    shared::Shared,
    ssh::{Session, SessionSpec, Via},
    stream::{BoxStream, Transcript},
    target::{Hop, Target},
    tcp,
    trust::{HostTrust, Pinned},
    tunnel::{self, ParentTransport, Tunnel, TunnelMonitor},
};

/// The session to the manager itself, or to the hop with this index, over TCP unless the caller changes that.
pub(crate) async fn spec(
    shared: &Shared,
    target: &Target,
    method: ConnectionMethod,
    hop: Option<(usize, &Hop)>,
) -> Result<SessionSpec, TransportError> {
    let route = target.route(method);
    let (route, login, host_key, attribute) = match hop {
        Some((index, hop)) => {
            let route = Route { host: hop.address.clone(), hop: Some(index + 1), ..route };
            (route, &hop.login, &hop.host_key, Attribute::Hop(index, "host_key"))
        }
        None => (route, &target.login, &target.host_key, Attribute::Manager("host_key")),
    };
    match shared.keys.load(login).await {
        Ok(identity) => Ok(SessionSpec {
            via: Via::Tcp,
            username: identity.username.clone(),
            credentials: identity.credentials,
            identity: identity.name,
            host_key: host_key.clone().map(|keys| Pinned { attribute, keys }),
            route: Route { username: Some(identity.username), ..route },
        }),
        Err(cause) => Err(TransportError::at(Phase::Setup, route, cause)),
    }
}

/// A session, and a channel to the wrapper on it. A shared session may have ended unnoticed; then a new one is tried, once.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    target: &Target,
    spec: SessionSpec,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let (key, route) = (spec.key(), spec.route.clone());
    if let Some(lease) = shared.sessions.open_session(&key) {
        match channel(target, lease, &route, deadline).await {
            Err(error) if error.is_end_of_session() => {
                tracing::debug!(manager = target.manager, %error, "a shared SSH session was closed; opening a new session");
            }
            done => return done,
        }
    }
    let lease =
        session(shared, spec, deadline).await.map_err(|error| error.for_wrapper(&target.wrapper_address))?;
    channel(target, lease, &route, deadline).await
}

/// The shared session of this spec, made when there is none.
pub(crate) async fn session(
    shared: &Arc<Shared>,
    spec: SessionSpec,
    deadline: Deadline,
) -> Result<SessionRef, TransportError> {
    let key = spec.key();
    let connecting = Arc::clone(shared);
    shared.sessions.session(&key, || connect(connecting, spec, deadline).boxed()).await
}

async fn channel(
    target: &Target,
    lease: SessionRef,
    route: &Route,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let opened = lease.open(&target.wrapper_address, deadline).await;
    let (stream, transcript) = opened.map_err(|error| error.for_wrapper(&target.wrapper_address))?;
    let monitor = SshMonitor { lease, transcript, route: route.clone() };
    Ok(Tunnel { stream, monitor: Arc::new(monitor) })
}

/// A new session. A server that refuses the connection for load (others' logins or ours that it has not put away yet) is tried again
/// while that makes sense.
async fn connect(
    shared: Arc<Shared>,
    spec: SessionSpec,
    deadline: Deadline,
) -> Result<Arc<Session>, TransportError> {
    let mut pauses = shared.limits.busy_pauses();
    loop {
        match login(&shared, &spec, deadline).await {
            Err(error) if matches!(error.cause, Cause::TooBusy) => {
                match pauses.next().filter(|pause| *pause < deadline.left()) {
                    Some(pause) => {
                        tracing::debug!(host = %spec.route.host, ?pause, "SSH server rejected the connection; retrying");
                        tokio::time::sleep(pause).await;
                    }
                    None => return Err(error),
                }
            }
            done => return done,
        }
    }
}

/// One login, once the limiter admits it.
async fn login(
    shared: &Arc<Shared>,
    spec: &SessionSpec,
    deadline: Deadline,
) -> Result<Arc<Session>, TransportError> {
    let route = &spec.route;
    let failed = |cause| TransportError::at(Phase::Setup, route.clone(), cause);
    let permit = shared.handshakes.enter(&route.host, deadline).await.map_err(failed)?;
    let gathered = gather_trust(shared, spec.host_key.clone(), &route.host).await;
    let mut trust = gathered.map_err(|problem| failed(Cause::Option(problem)))?;
    let mut refused = None;
    loop {
        let (stream, parent) = open_stream(shared, spec, deadline).await?;
        let error =
            match Session::establish(stream, parent, spec, trust.clone(), shared.limits.clone(), deadline)
                .await
            {
                Ok(session) => return Ok(Arc::new(session.hold_permit(permit.only_at_host()))),
                Err(error) => error,
            };
        match &error.cause {
            Cause::HostKey(refusal) if trust.exclude(refusal) => {
                tracing::debug!(host = %route.host, key_type = refusal.key_type, "reconnecting with another host key type");
                refused.get_or_insert(error);
            }
            // The host has no further types: the first one that it showed is the one to report.
            Cause::NoCommonAlgorithm { .. } => return Err(refused.unwrap_or(error)),
            _ => return Err(error),
        }
    }
}

/// A stream to an SSH server.
async fn open_stream(
    shared: &Shared,
    spec: &SessionSpec,
    deadline: Deadline,
) -> Result<(BoxStream, Option<Arc<dyn ParentTransport>>), TransportError> {
    let route = &spec.route;
    Ok(match &spec.via {
        Via::Tcp => {
            let limit = deadline.cap(shared.limits.tcp);
            let connected = tokio::time::timeout(limit, tcp::connect(&route.host)).await;
            let stream = connected
                .unwrap_or(Err(Cause::TimedOut { limit }))
                .map_err(|cause| TransportError::at(Phase::Tcp, route.clone(), cause))?;
            (Box::new(stream), None)
        }
        Via::Command(arguments) => {
            let (stream, running) = command::spawn(arguments)
                .map_err(|cause| TransportError::at(Phase::Command, route.clone(), cause))?;
            (Box::new(stream), Some(running))
        }
        Via::Session(bastion, _) => {
            let to = WrapperAddress::Tcp(route.host.clone());
            let (stream, _) = bastion.open(&to, deadline).await.map_err(|mut error| {
                error.route.onward = Some(route.host.clone());
                error.route.onward_hop = route.hop;
                error
            })?;
            (stream, Some(Arc::clone(bastion) as Arc<dyn ParentTransport>))
        }
    })
}

/// What is known of a host's key; files are read off the async threads.
async fn gather_trust(
    shared: &Arc<Shared>,
    host_key: Option<Pinned>,
    host: &HostPort,
) -> Result<HostTrust, InvalidOption> {
    let at_hand = HostTrust::is_at_hand(&shared.trust);
    let (shared, host) = (Arc::clone(shared), host.clone());
    let gather = move || HostTrust::gather(&shared.trust, host_key.as_ref(), &host);
    if at_hand {
        return gather();
    }
    tokio::task::spawn_blocking(gather).await.unwrap_or_else(|error| {
        Err(InvalidOption { attribute: Attribute::Ssh("known_hosts_path"), problem: error.to_string() })
    })
}

/// Knows why a tunnel over SSH closed: with its session, or on the wrapper's side of it.
struct SshMonitor {
    lease: SessionRef,
    transcript: Transcript,
    route: Route,
}

#[async_trait]
impl TunnelMonitor for SshMonitor {
    async fn close_reason(&self) -> Option<TransportError> {
        if let Some(error) = self.lease.close_reason(Phase::Call).await {
            return Some(TransportError { route: Box::new(self.route.clone()), ..error });
        }
        tunnel::wrapper_side(&self.transcript, &self.route)
    }

    fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    fn route(&self) -> &Route {
        &self.route
    }
}
