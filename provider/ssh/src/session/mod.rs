//! SSH sessions. Only this module uses russh.
//!
//! A [`Session`] runs over any byte stream (TCP, a channel of a jump host, a command). It performs handshake, host key check and
//! authentication, each with a time limit, and then opens channels. Errors contain what russh reports only to its handler: the reason of a
//! disconnect, and the text of a channel refusal.

mod agent;
mod algorithms;
mod auth;
mod failure;
mod handler;
mod host_certificate;
pub(crate) mod nagle;
mod private_key;
mod short_scalar;
mod signer;
mod user_certificate;

pub(crate) use agent::Agent;
pub(crate) use auth::Credential;
pub use failure::is_unknown_name;
pub(crate) use private_key::{CertifiedKey, DecodeError, PrivateKey, check_certificate};

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use russh::client::{self, Handle};
use tokio::io::BufReader;
use tokio_util::sync::CancellationToken;

use self::handler::{Handler, HandlerError, Observed, REASON_WAIT};
use crate::{
    address::{HostPort, WrapperAddress},
    error::{Cause, TransportError},
    limits::{Deadline, Limits},
    parent::ParentTransport,
    route::{Phase, Route},
    stream::{BoxStream, ByteStream, RecordingStream, Transcript},
    trust::{HostTrust, Pinned},
    user_files,
};

/// russh reads each packet in two parts. A buffer saves system calls: one read for all packets that have arrived.
const READ_BUFFER: usize = 4 << 10;
/// The time for a regular disconnect.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A session to an SSH server that a connection needs.
#[derive(Debug)]
pub(crate) struct SessionSpec {
    pub(crate) key: SessionKey,
    pub(crate) via: Via,
    /// Tried in this order.
    pub(crate) credentials: Vec<Credential>,
    /// The file of a key that is offered without a certificate.
    pub(crate) key_file: Option<PathBuf>,
    /// For errors.
    pub(crate) route: Route,
}

/// The stream that a session runs over.
#[derive(Debug)]
pub(crate) enum Via {
    Tcp,
    /// The standard input and output of a command.
    Command(Vec<String>),
    /// A channel of another session.
    Session(Arc<Session>, Box<SessionKey>),
}

/// Managers whose keys are equal share one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub(crate) via: ViaKey,
    pub(crate) address: HostPort,
    pub(crate) username: String,
    /// Identifies the credentials; contains no secret.
    pub(crate) identity: String,
    /// The host key that the runner manager or the jump host requires.
    pub(crate) host_key: Option<Pinned>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ViaKey {
    Tcp,
    Command(Vec<String>),
    Session(Box<SessionKey>),
}

impl Via {
    pub(crate) fn key(&self) -> ViaKey {
        match self {
            Self::Tcp => ViaKey::Tcp,
            Self::Command(arguments) => ViaKey::Command(arguments.clone()),
            Self::Session(_, key) => ViaKey::Session(key.clone()),
        }
    }
}

/// An authenticated SSH connection. Dropping it disconnects, and closes all channels.
pub(crate) struct Session {
    handle: Option<Arc<Handle<Handler>>>,
    observed: Arc<Observed>,
    transcript: Transcript,
    route: Route,
    limits: Limits,
    end: CancellationToken,
    opening: AtomicUsize,
    /// The certificate of the login, if it does not permit forwarding.
    without_forwarding: Option<String>,
    /// Any host key was accepted.
    is_unverified: bool,
    parent: Option<Arc<dyn ParentTransport>>,
}

impl Session {
    /// Handshake, host key check and authentication over a stream. Dropping the future closes the connection.
    pub(crate) async fn establish(
        stream: impl ByteStream,
        parent: Option<Arc<dyn ParentTransport>>,
        spec: &SessionSpec,
        trust: HostTrust,
        limits: Limits,
        deadline: Deadline,
    ) -> Result<Self, TransportError> {
        let end = CancellationToken::new();
        let on_failure = end.clone().drop_guard();
        let mut session = Self {
            handle: None,
            observed: Arc::default(),
            transcript: Transcript::default(),
            route: spec.route.clone(),
            limits,
            end: end.clone(),
            opening: AtomicUsize::new(0),
            without_forwarding: None,
            is_unverified: trust.accepts_any(),
            parent,
        };
        let config = Arc::new(algorithms::config(&trust, &session.limits));
        let relayed = !matches!(spec.via, Via::Tcp);
        let handler = Handler::new(Arc::clone(&session.observed), trust, spec.route.host.clone(), relayed);
        let stream = RecordingStream::new(stream, session.transcript.clone(), end);
        let stream = BufReader::with_capacity(READ_BUFFER, stream);

        let limit = deadline.cap(session.limits.handshake);
        let connecting = client::connect_stream(config, stream, handler);
        let mut handle = match tokio::time::timeout(limit, Box::pin(connecting)).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(HandlerError::HostKey(refusal))) => {
                return Err(session.failure(Phase::HostKey, Cause::HostKey(refusal)).await);
            }
            Ok(Err(HandlerError::Ssh(error))) => {
                let cause = failure::of_handshake(&error, &session.limits, &session.transcript.first());
                return Err(session.failure(Phase::Handshake, cause).await);
            }
            Ok(Err(HandlerError::ServerOpensChannels(count))) => {
                return Err(session.failure(Phase::Handshake, Cause::ServerOpensChannels(count)).await);
            }
            Err(_) => {
                let cause = failure::of_silence(limit, &session.transcript.first());
                return Err(session.failure(Phase::Handshake, cause).await);
            }
        };

        let username = &spec.key.username;
        let (observed, limits) = (&session.observed, &session.limits);
        let login = auth::authenticate(&mut handle, observed, username, &spec.credentials, limits, deadline);
        match login.await {
            Ok(certificate) => session.without_forwarding = certificate,
            Err(cause) => {
                let is_refused = matches!(cause, Cause::AuthRefused { .. });
                let mut error = session.failure(Phase::Auth, cause).await;
                error.evidence.unused_certificate =
                    spec.key_file.as_deref().filter(|_| is_refused).and_then(certificate_beside);
                return Err(error);
            }
        }
        session.handle = Some(Arc::new(handle));
        on_failure.disarm();
        tracing::debug!(host = %spec.route.host, username = username, "SSH session established");
        Ok(session)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.observed.ended().is_cancelled() || self.handle.as_ref().is_none_or(|handle| handle.is_closed())
    }

    /// Opens a channel to an address on the server's side. The stream ends with the session, even if a write is blocked.
    pub(crate) async fn open(
        &self,
        to: &WrapperAddress,
        deadline: Deadline,
    ) -> Result<(BoxStream, Transcript), TransportError> {
        let limit = deadline.cap(self.limits.channel);
        let opened = tokio::time::timeout(limit, self.open_unlimited(to)).await;
        match opened.unwrap_or(Err(Cause::TimedOut { limit })) {
            Ok(channel) => {
                let transcript = Transcript::default();
                let end = self.observed.ended().clone();
                let stream = RecordingStream::new(channel.into_stream(), transcript.clone(), end);
                Ok((Box::new(stream), transcript))
            }
            Err(cause) => {
                let mut error = self.failure(Phase::Channel, cause).await;
                error.evidence.certificate.clone_from(&self.without_forwarding);
                Err(error)
            }
        }
    }

    /// Whether the session has ended. Waits a moment: the reason arrives after the end of the stream.
    async fn ends(&self) -> bool {
        tokio::time::timeout(REASON_WAIT, self.observed.ended().cancelled()).await.is_ok()
    }

    /// Why the session ended, if [it did](Self::ends).
    pub(crate) async fn close_reason(&self, phase: Phase) -> Option<TransportError> {
        if !self.ends().await {
            return None;
        }
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
                // The handler receives the text without a channel number: it may belong to another channel that is being opened.
                let text = self.observed.refusal_text(REASON_WAIT).await.filter(|_| still_alone);
                let reason = failure::channel_refusal(&reason);
                Err(Cause::ChannelRefused { reason, text: text.unwrap_or_default() })
            }
            Err(error) => {
                if self.ends().await {
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
                // The originator is only for the server's log, and unknown behind a command or a jump host.
                let port = u32::from(address.port());
                handle.channel_open_direct_tcpip(address.host(), port, "127.0.0.1", 0).await
            }
        }
    }

    /// An error with everything that was observed.
    async fn failure(&self, phase: Phase, cause: Cause) -> TransportError {
        let mut error = TransportError::at(phase, self.route.clone(), cause);
        error.evidence.received = self.transcript.first();
        error.evidence.is_unverified = self.is_unverified;
        error.evidence.banner = (phase == Phase::Auth).then(|| self.observed.banner()).flatten();
        match &self.parent {
            Some(parent) => parent.enrich(error).await,
            None => error,
        }
    }
}

/// The certificate that `ssh` also uses with this key, if there is one.
fn certificate_beside(key: &Path) -> Option<String> {
    let mut name = key.file_name()?.to_owned();
    name.push("-cert.pub");
    let certificate = key.with_file_name(name);
    certificate.is_file().then(|| user_files::shown(&certificate))
}

/// The end of a jump host's session is the cause of all errors behind it.
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
                    let disconnect = async {
                        let reason = russh::Disconnect::ByApplication;
                        if handle.disconnect(reason, "done", "en").await.is_ok() {
                            ended.cancelled().await;
                        }
                    };
                    if tokio::time::timeout(DISCONNECT_TIMEOUT, disconnect).await.is_err() {
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
