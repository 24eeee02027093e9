//! A scripted wrapper on tokio's paused clock.

use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use grit_ssh::{Cause, ChannelRefusal, KeyError, Phase, TransportError};
use tokio::time::Instant;

use super::Retry;
use crate::client::{ClientError, DrainRequest, RunnerStatus, Snapshot, Start, StatusReport, Wrapper};

/// The input of a script.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ScriptInput {
    /// Since the start.
    pub elapsed: Duration,
    /// Since the first graceful request.
    pub graceful: Option<Duration>,
    /// Since the first forceful request.
    pub forceful: Option<Duration>,
    /// Requests to start the runner so far.
    pub starts: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptedFault {
    /// No host responds.
    Down,
    /// The server temporarily rejects connections.
    Busy,
    /// A message during a call violated the protocol.
    Broken,
    /// The connection was lost during a call.
    Lost,
    Refused,
    /// The host key is verified, and the login rejected.
    LoginRejected,
    /// The host key is verified, and the connection ended during the login.
    LoginLost,
    /// The file of the private key cannot be read.
    KeyUnreadable,
    /// This machine has no route to the host.
    NoRoute,
    /// The wrapper's socket does not exist.
    NoSocket,
    /// Other connections used all slots.
    HandshakeQueueTimeout,
    /// The deadline left no time for an attempt.
    CutOff,
}

impl From<ScriptedFault> for ClientError {
    fn from(fault: ScriptedFault) -> Self {
        let route = crate::client::example_route();
        let (phase, cause) = match fault {
            ScriptedFault::Down => {
                (Phase::Tcp, Cause::Network(io::Error::from(io::ErrorKind::ConnectionRefused).into()))
            }
            ScriptedFault::Busy => (Phase::Handshake, Cause::TooBusy),
            ScriptedFault::Broken => (Phase::Call, Cause::Protocol("the connection broke".to_owned())),
            ScriptedFault::Lost => (Phase::Call, Cause::Lost("the connection was reset".to_owned())),
            ScriptedFault::HandshakeQueueTimeout => {
                (Phase::Setup, Cause::HandshakeQueueTimeout { limit: Duration::from_secs(30) })
            }
            ScriptedFault::CutOff => (Phase::Tcp, Cause::TimedOut { limit: Duration::from_millis(80) }),
            ScriptedFault::LoginRejected => (Phase::Auth, Cause::TooManyAttempts),
            ScriptedFault::LoginLost => (Phase::Auth, Cause::Lost("the connection was reset".to_owned())),
            ScriptedFault::KeyUnreadable => {
                let (path, problem) = ("/key".to_owned(), "No such file or directory".to_owned());
                (Phase::Setup, Cause::Key(KeyError::Unreadable { path, problem }))
            }
            ScriptedFault::NoRoute => {
                (Phase::Tcp, Cause::NotSent(io::Error::from(io::ErrorKind::HostUnreachable).into()))
            }
            ScriptedFault::NoSocket => {
                let (reason, text) = (ChannelRefusal::ConnectFailed, String::new());
                (Phase::Channel, Cause::ChannelRefused { reason, text })
            }
            ScriptedFault::Refused => {
                return Self::Status {
                    method: "Drain",
                    code: tonic::Code::PermissionDenied,
                    message: String::new(),
                    route: Box::new(route),
                };
            }
        };
        TransportError::at(phase, route, cause).into()
    }
}

pub(super) struct Scripted<F> {
    script: F,
    start: Instant,
    asked: Mutex<(Vec<Instant>, Vec<Instant>)>,
    starts: AtomicUsize,
}

impl<F: Fn(ScriptInput) -> Result<S, ScriptedFault> + Sync, S: Into<Snapshot>> Scripted<F> {
    pub(super) fn new(script: F) -> Self {
        let starts = AtomicUsize::default();
        let (start, asked) = (Instant::now(), Mutex::default());
        Self { script, start, asked, starts }
    }

    /// Since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Graceful and forceful requests so far.
    pub(super) fn requests(&self) -> (usize, usize) {
        let asked = self.asked.lock().unwrap();
        (asked.0.len(), asked.1.len())
    }

    fn answer(&self) -> Result<Snapshot, ClientError> {
        let asked = self.asked.lock().unwrap();
        let since = |asks: &[Instant]| asks.first().map(Instant::elapsed);
        let input = ScriptInput {
            elapsed: self.start.elapsed(),
            graceful: since(&asked.0),
            forceful: since(&asked.1),
            starts: self.starts.load(Ordering::SeqCst),
        };
        Ok((self.script)(input)?.into())
    }
}

impl From<RunnerStatus> for Snapshot {
    fn from(status: RunnerStatus) -> Self {
        Self { report: StatusReport { status, failure_reason: String::new() }, detail: None }
    }
}

impl<F: Fn(ScriptInput) -> Result<S, ScriptedFault> + Sync, S: Into<Snapshot>> Wrapper for &Scripted<F> {
    fn until(&self, _: Instant) -> Self {
        self
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        self.answer()
    }

    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Snapshot, ClientError> {
        self.answer()?;
        {
            let mut asked = self.asked.lock().unwrap();
            if request.forceful { asked.1.push(Instant::now()) } else { asked.0.push(Instant::now()) }
        }
        self.answer()
    }

    async fn running_jobs(&self) -> Result<Vec<u64>, ClientError> {
        Ok(vec![17, 18])
    }

    async fn start(&self) -> Result<Start, ClientError> {
        self.answer()?;
        self.starts.fetch_add(1, Ordering::SeqCst);
        Ok(Start::Requested)
    }
}

pub(super) fn retry(attempts: Option<u32>) -> Retry {
    Retry { attempts }
}
