//! An SSH session over any byte stream: handshake, host key check and authentication, each with its limit, and then channels.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use russh::client::{self, Handle};
use tokio::io::BufReader;
use tokio_util::sync::CancellationToken;

use super::{
    algorithms,
    auth::{self, Credential},
    failure,
    handler::{Handler, HandlerError, Observed, REASON_WAIT},
};
use crate::transport::{
    address::{HostPort, WrapperAddress},
    error::{Cause, Observations, Phase, Route, TransportError},
    handshakes::HostPermit,
    limits::{Deadline, Limits},
    stream::{BoxStream, ByteStream, RecordingStream, Transcript},
    trust::{HostTrust, Pinned},
    tunnel::ParentTransport,
};

/// russh reads the length of each packet by itself. From a buffer, that is not two calls of the kernel a packet (and as many that ask for
/// quick acknowledgement), but one for all packets that have arrived.
const READ_BUFFER: usize = 4 << 10;
/// How long a session is given to say goodbye.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A session to an SSH server, as it is wanted.
#[derive(Debug)]
pub(crate) struct SessionSpec {
    pub(crate) via: Via,
    pub(crate) username: String,
    /// Tried in this order.
    pub(crate) credentials: Vec<Credential>,
    /// Names the credentials; holds no secret.
    pub(crate) identity: String,
    /// The host key that the manager's entry, or the hop, demands.
    pub(crate) host_key: Option<Pinned>,
    pub(crate) route: Route,
}

/// What carries the connection to the server.
#[derive(Debug)]
pub(crate) enum Via {
    Tcp,
    /// The standard input and output of a command.
    Command(Vec<String>),
    /// A channel of another session.
    Session(Arc<Session>, Box<SessionKey>),
}

/// What makes two sessions the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    via: ViaKey,
    host: HostPort,
    username: String,
    identity: String,
    host_key: Option<Pinned>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ViaKey {
    Tcp,
    Command(Vec<String>),
    Session(Box<SessionKey>),
}

impl SessionSpec {
    pub(crate) fn key(&self) -> SessionKey {
        SessionKey {
            via: match &self.via {
                Via::Tcp => ViaKey::Tcp,
                Via::Command(arguments) => ViaKey::Command(arguments.clone()),
                Via::Session(_, key) => ViaKey::Session(key.clone()),
            },
            host: self.route.host.clone(),
            username: self.username.clone(),
            identity: self.identity.clone(),
            host_key: self.host_key.clone(),
        }
    }
}

/// An authenticated SSH connection. Dropping it says goodbye and ends it, and with it every channel.
pub(crate) struct Session {
    handle: Option<Arc<Handle<Handler>>>,
    observed: Arc<Observed>,
    transcript: Transcript,
    route: Route,
    limits: Limits,
    end: CancellationToken,
    opening: AtomicUsize,
    parent: Option<Arc<dyn ParentTransport>>,
    permit: Mutex<Option<HostPermit>>,
}

impl Session {
    /// Handshake, host key check and authentication over a stream. Dropping the future ends the connection.
    pub(crate) async fn establish(
        stream: impl ByteStream,
        parent: Option<Arc<dyn ParentTransport>>,
        spec: &SessionSpec,
        trust: HostTrust,
        limits: Limits,
        deadline: Deadline,
    ) -> Result<Self, TransportError> {
        let SessionSpec { route, username, credentials, .. } = spec;
        let end = CancellationToken::new();
        let on_failure = end.clone().drop_guard();
        let transcript = Transcript::default();
        let tap = RecordingStream::new(stream, transcript.clone(), end.clone());
        let tap = BufReader::with_capacity(READ_BUFFER, tap);
        let observed = Arc::new(Observed::default());
        let host = route.host.clone();
        let config = algorithms::config(&trust, &limits);
        let handler = Handler::new(Arc::clone(&observed), trust, host);

        let limit = deadline.cap(limits.handshake);
        let connecting = client::connect_stream(Arc::new(config), tap, handler);
        let shaken = tokio::time::timeout(limit, Box::pin(connecting)).await;
        let mut session = Self {
            handle: None,
            observed,
            transcript,
            route: route.clone(),
            limits,
            end: end.clone(),
            opening: AtomicUsize::new(0),
            parent,
            permit: Mutex::default(),
        };
        let mut handle = match shaken {
            Ok(Ok(handle)) => handle,
            Ok(Err(HandlerError::HostKey(refusal))) => {
                return Err(session.failure(Phase::HostKey, Cause::HostKey(refusal)).await);
            }
            Ok(Err(HandlerError::Ssh(error))) => {
                let cause = failure::of_handshake(&error, &session.limits, &session.transcript.first());
                return Err(session.failure(Phase::Handshake, cause).await);
            }
            Err(_) => {
                let cause = failure::of_silence(limit, &session.transcript.first());
                return Err(session.failure(Phase::Handshake, cause).await);
            }
        };

        let login = auth::authenticate(
            &mut handle,
            &session.observed,
            username,
            credentials,
            &session.limits,
            deadline,
        );
        if let Err(cause) = login.await {
            return Err(session.failure(Phase::Auth, cause).await);
        }
        session.handle = Some(Arc::new(handle));
        on_failure.disarm();
        tracing::debug!(host = %session.route.host, username, "SSH session established");
        Ok(session)
    }

    /// Keeps the place among the handshakes of its host until [`Self::settle`].
    ///
    /// sshd tells us of a successful login before it takes the connection off its count for MaxStartups; on a busy machine some more come
    /// meanwhile, and the count goes over the limit. It has done so when it opens a channel.
    pub(crate) fn hold_permit(mut self, permit: HostPermit) -> Self {
        self.permit = Mutex::new(Some(permit));
        self
    }

    /// The server has answered after the login, or nobody is going to ask it.
    pub(crate) fn release_permit(&self) {
        drop(self.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether the session has ended, and is of use to nobody.
    pub(crate) fn is_closed(&self) -> bool {
        self.observed.ended().is_cancelled() || self.handle.as_ref().is_none_or(|handle| handle.is_closed())
    }

    /// Opens a channel to an address on the server's side. The stream ends with the session, also when it waits for room to write.
    pub(crate) async fn open(
        &self,
        to: &WrapperAddress,
        deadline: Deadline,
    ) -> Result<(BoxStream, Transcript), TransportError> {
        let limit = deadline.cap(self.limits.channel);
        let opened = tokio::time::timeout(limit, self.open_unlimited(to)).await;
        self.release_permit();
        match opened {
            Ok(Ok(channel)) => {
                let transcript = Transcript::default();
                let tap = RecordingStream::new(
                    channel.into_stream(),
                    transcript.clone(),
                    self.observed.ended().clone(),
                );
                Ok((Box::new(tap), transcript))
            }
            Ok(Err(cause)) => Err(self.failure(Phase::Channel, cause).await),
            Err(_) => Err(self.failure(Phase::Channel, Cause::TimedOut { limit }).await),
        }
    }

    /// Why the session ended, if it did; waits a moment for that, as the news of a broken stream is faster than its reason.
    pub(crate) async fn close_reason(&self, phase: Phase) -> Option<TransportError> {
        tokio::time::timeout(REASON_WAIT, self.observed.ended().cancelled()).await.ok()?;
        let cause = self.observed.end_cause(&self.limits);
        Some(self.failure(phase, cause).await)
    }

    async fn open_unlimited(&self, to: &WrapperAddress) -> Result<russh::Channel<client::Msg>, Cause> {
        let alone = self.opening.fetch_add(1, Ordering::SeqCst) == 0;
        let counted = Counted(&self.opening);
        let opened = self.open_once(to).await;
        let still_alone = alone && self.opening.load(Ordering::SeqCst) == 1;
        drop(counted);
        match opened {
            Ok(channel) => Ok(channel),
            Err(russh::Error::ChannelOpenFailure(reason)) => {
                // The text comes by another way and names no channel: with others under way it may be theirs.
                let text = self.observed.refusal_text(REASON_WAIT).await.filter(|_| still_alone);
                let reason = failure::channel_refusal(&reason);
                Err(Cause::ChannelRefused { reason, text: text.unwrap_or_default() })
            }
            Err(error) => {
                if tokio::time::timeout(REASON_WAIT, self.observed.ended().cancelled()).await.is_ok() {
                    return Err(self.observed.end_cause(&self.limits));
                }
                Err(failure::of_session(&error, &self.limits))
            }
        }
    }

    async fn open_once(&self, to: &WrapperAddress) -> Result<russh::Channel<client::Msg>, russh::Error> {
        let handle = self.handle.as_ref().ok_or(russh::Error::Disconnect)?;
        match to {
            WrapperAddress::Unix(path) => handle.channel_open_direct_streamlocal(path.clone()).await,
            WrapperAddress::Tcp(address) => {
                // The originator is for the server's log; ours is not known behind a command or a bastion.
                let port = u32::from(address.port());
                handle.channel_open_direct_tcpip(address.host(), port, "127.0.0.1", 0).await
            }
        }
    }

    /// The error of a phase with all that was seen so far.
    async fn failure(&self, phase: Phase, cause: Cause) -> TransportError {
        let mut evidence = Observations { received: self.transcript.first(), ..Observations::default() };
        self.observed.add_to(&mut evidence);
        let error = TransportError {
            phase,
            route: Box::new(self.route.clone()),
            cause,
            evidence: Box::new(evidence),
        };
        match &self.parent {
            Some(parent) => parent.enrich(error).await,
            None => error,
        }
    }
}

/// A bastion carries the sessions behind it: when it is gone, that is the reason.
#[async_trait]
impl ParentTransport for Session {
    async fn enrich(&self, error: TransportError) -> TransportError {
        if self.is_closed() { self.close_reason(error.phase).await.unwrap_or(error) } else { error }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (handle, end, ended) = (self.handle.take(), self.end.clone(), self.observed.ended().clone());
        let parent = self.parent.take();
        match (handle, tokio::runtime::Handle::try_current()) {
            (Some(handle), Ok(runtime)) => {
                runtime.spawn(async move {
                    let goodbye = async {
                        let reason = russh::Disconnect::ByApplication;
                        if handle.disconnect(reason, "done", "en").await.is_ok() {
                            ended.cancelled().await;
                        }
                    };
                    if tokio::time::timeout(DISCONNECT_TIMEOUT, goodbye).await.is_err() {
                        tracing::debug!("SSH session did not close in time; closing the connection");
                    }
                    end.cancel();
                    drop(parent);
                });
            }
            _ => end.cancel(),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("route", &self.route)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// Counts down when dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
