//! `ssh_command`: the standard input and output of a command are the connection to the wrapper. The command has its own user, keys and
//! trust.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    command::{self, Running, template},
    connect::handshakes::{HandshakeLimiter, Permit},
    connect::tunnel::{self, Tunnel, TunnelMonitor},
    error::{Cause, TransportError},
    limits::Deadline,
    route::{ConnectionMethod, Phase, Route},
    stream::{RecordingStream, Transcript},
    target::Target,
};

const METHOD: ConnectionMethod = ConnectionMethod::SshCommand;

pub(crate) async fn open(
    handshakes: &HandshakeLimiter,
    target: &Target,
    arguments: &[String],
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let arguments = template::expand(arguments, target, METHOD)?;
    let route = target.route(METHOD);
    let failed = |phase| {
        let route = route.clone();
        move |cause| TransportError::at(phase, route, cause)
    };
    let permit = handshakes.enter(&target.address, deadline).await.map_err(failed(Phase::Setup))?;
    let (stream, running) = command::spawn(&arguments).map_err(failed(Phase::Command))?;
    let transcript = Transcript::default();
    let stream = RecordingStream::new(stream, transcript.clone(), CancellationToken::new());
    let monitor = CommandMonitor { running, transcript, route, deadline, permit: Mutex::new(Some(permit)) };
    Ok(Tunnel { stream: Box::new(stream), monitor: Arc::new(monitor) })
}

struct CommandMonitor {
    running: Arc<Running>,
    transcript: Transcript,
    route: Route,
    deadline: Deadline,
    /// The command runs its own handshake. It is complete when data of the wrapper arrives.
    permit: Mutex<Option<Permit>>,
}

#[async_trait]
impl TunnelMonitor for CommandMonitor {
    async fn close_reason(&self) -> Option<TransportError> {
        let printed = tunnel::wrapper_error(&self.transcript, &self.route)
            .filter(|error| matches!(error.cause, Cause::NotAWrapper));
        if let Some(mut error) = printed {
            error.evidence.stderr = self.running.stderr();
            return Some(error);
        }
        if !self.transcript.is_closed() {
            return None;
        }
        let ended = self.running.end(Phase::Call, self.route.clone()).await;
        Some(ended.unwrap_or_else(|| {
            let cause = Cause::Lost("the command closed its output but is still running".to_owned());
            self.error(Phase::Call, cause)
        }))
    }

    async fn first_byte(&self) -> Result<(), TransportError> {
        let received = tokio::time::timeout_at(self.deadline.end(), self.transcript.changed()).await;
        drop(self.permit.lock().take());
        received.map_err(|_| self.error(Phase::Command, Cause::TimedOut { limit: self.deadline.whole() }))
    }

    fn route(&self) -> &Route {
        &self.route
    }
}

impl CommandMonitor {
    fn error(&self, phase: Phase, cause: Cause) -> TransportError {
        let mut error = TransportError::at(phase, self.route.clone(), cause);
        error.evidence.stderr = self.running.stderr();
        error
    }
}
