//! A tunnel over SSH: a shared session, and a channel to the wrapper.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;

use crate::{
    log_key,
    transport::{
        address::WrapperAddress,
        command,
        error::{Attribute, Cause, InvalidOption, Phase, Route, TransportError},
        limits::Deadline,
        pool::SessionRef,
        settings::ConnectionMethod,
        shared::Shared,
        ssh::{Session, SessionKey, SessionSpec, Via},
        stream::{BoxStream, Transcript},
        target::{Hop, Target},
        tcp,
        trust::{HostTrust, Pinned},
        tunnel::{self, ParentTransport, Tunnel, TunnelMonitor},
    },
};

/// The session to the runner manager, or to the jump host with this index.
pub(crate) async fn spec(
    shared: &Shared,
    target: &Target,
    method: ConnectionMethod,
    hop: Option<(usize, &Hop)>,
    via: Via,
) -> Result<SessionSpec, TransportError> {
    let (address, login, host_key, attribute) = match hop {
        Some((index, hop)) => (&hop.address, &hop.login, &hop.host_key, Attribute::Hop(index, "host_key")),
        None => (&target.address, &target.login, &target.host_key, Attribute::Manager("host_key")),
    };
    let hop = hop.map(|(index, _)| index + 1);
    let mut route = Route { host: address.clone(), hop, ..target.route(method) };
    let identity = match shared.keys.load(login).await {
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
    Ok(SessionSpec { key, via, credentials: identity.credentials, route })
}

/// A session, and a channel to the wrapper. If a shared session has ended unnoticed, a new one is opened, once.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    target: &Target,
    spec: SessionSpec,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let spec = Arc::new(spec);
    let mut may_repeat = true;
    loop {
        let session = session(shared, target, &spec, deadline).await?;
        match session.open(&target.wrapper_address, deadline).await {
            Ok((stream, transcript)) => {
                let monitor = SshMonitor { session, transcript, route: spec.route.clone() };
                return Ok(Tunnel { stream, monitor: Arc::new(monitor) });
            }
            Err(error) if may_repeat && session.reused && error.is_end_of_session() => {
                may_repeat = false;
                tracing::debug!({ log_key::MANAGER } = target.manager, { log_key::ERROR } = %error, "a shared SSH session was closed; opening a new session");
            }
            Err(error) => return Err(error.for_wrapper(&target.wrapper_address)),
        }
    }
}

/// The shared session of this spec, or a new one.
pub(crate) async fn session(
    shared: &Arc<Shared>,
    target: &Target,
    spec: &Arc<SessionSpec>,
    deadline: Deadline,
) -> Result<SessionRef, TransportError> {
    let connecting = || connect(Arc::clone(shared), Arc::clone(spec), deadline).boxed();
    let session = shared.sessions.session(&spec.key, connecting).await;
    session.map_err(|error| error.for_wrapper(&target.wrapper_address))
}

/// Opens a session. Retries while the server rejects connections because of too many logins.
async fn connect(
    shared: Arc<Shared>,
    spec: Arc<SessionSpec>,
    deadline: Deadline,
) -> Result<Arc<Session>, TransportError> {
    let mut pauses = shared.limits.busy_pauses();
    loop {
        let error = match login(&shared, &spec, deadline).await {
            Err(error) if matches!(error.cause, Cause::TooBusy) => error,
            done => return done,
        };
        let Some(pause) = pauses.next().filter(|pause| *pause < deadline.left()) else { return Err(error) };
        tracing::debug!({ log_key::HOST } = %spec.key.address, { log_key::DELAY } = ?pause, "SSH server rejected the connection; retrying");
        tokio::time::sleep(pause).await;
    }
}

/// Logs in once, as soon as the handshake limiter permits it.
async fn login(
    shared: &Arc<Shared>,
    spec: &Arc<SessionSpec>,
    deadline: Deadline,
) -> Result<Arc<Session>, TransportError> {
    let failed = |cause| TransportError::at(Phase::Setup, spec.route.clone(), cause);
    let permit = shared.handshakes.enter(&spec.key.address, deadline).await.map_err(failed)?;
    let mut trust = gather_trust(shared, spec).await.map_err(|problem| failed(Cause::Option(problem)))?;
    let mut refused = None;
    loop {
        let (stream, parent) = open_stream(shared, spec, deadline).await?;
        let (trusted, limits) = (trust.clone(), shared.limits.clone());
        let error = match Session::establish(stream, parent, spec, trusted, limits, deadline).await {
            Ok(session) => return Ok(Arc::new(session.hold_permit(permit.only_at_host()))),
            Err(error) => error,
        };
        match &error.cause {
            Cause::HostKey(refusal) if trust.exclude(refusal) => {
                tracing::debug!({ log_key::HOST } = %spec.key.address, { log_key::KEY_TYPE } = refusal.key_type, "reconnecting with another host key type");
                refused.get_or_insert(error);
            }
            // The host has no further key types. The error is about its first key.
            Cause::NoCommonAlgorithm { .. } => return Err(refused.unwrap_or(error)),
            _ => return Err(error),
        }
    }
}

/// The stream to the SSH server, and what it runs through.
async fn open_stream(
    shared: &Shared,
    spec: &SessionSpec,
    deadline: Deadline,
) -> Result<(BoxStream, Option<Arc<dyn ParentTransport>>), TransportError> {
    let address = &spec.key.address;
    let failed = |phase| move |cause| TransportError::at(phase, spec.route.clone(), cause);
    match &spec.via {
        Via::Tcp => {
            let limit = deadline.cap(shared.limits.tcp);
            let connected = tokio::time::timeout(limit, tcp::connect(address)).await;
            let stream = connected.unwrap_or(Err(Cause::TimedOut { limit })).map_err(failed(Phase::Tcp))?;
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

/// The trusted keys of the host. Files are read in a blocking thread.
async fn gather_trust(shared: &Arc<Shared>, spec: &Arc<SessionSpec>) -> Result<HostTrust, InvalidOption> {
    let reads_no_file = HostTrust::is_at_hand(&shared.trust);
    let (shared, spec) = (Arc::clone(shared), Arc::clone(spec));
    let gather = move || HostTrust::gather(&shared.trust, spec.key.host_key.as_ref(), &spec.key.address);
    if reads_no_file {
        return gather();
    }
    tokio::task::spawn_blocking(gather).await.unwrap_or_else(|error| {
        Err(InvalidOption { attribute: Attribute::Ssh("known_hosts_path"), problem: error.to_string() })
    })
}

struct SshMonitor {
    session: SessionRef,
    transcript: Transcript,
    route: Route,
}

#[async_trait]
impl TunnelMonitor for SshMonitor {
    async fn close_reason(&self) -> Option<TransportError> {
        if let Some(error) = self.session.close_reason(Phase::Call).await {
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
