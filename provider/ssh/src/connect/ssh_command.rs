//! `ssh_command`: the standard input and output of a command are the connection to the wrapper. The command has its own user, keys and
//! trust.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::{
    command::{self, Running, template},
    connect::handshakes::HandshakeLimiter,
    connect::tunnel::{self, Tunnel, TunnelMonitor},
    error::{Cause, TransportError},
    limits::Deadline,
    route::{ConnectionMethod, Phase, Route},
    stream::{RecordingStream, Transcript},
    target::Target,
};

/// The maximum time to start a command, without the wait for other connections.
const COMMAND_START: Duration = Duration::from_secs(1);

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
    // The command runs its own handshake. It is complete when data of the wrapper arrives.
    let (received, limit) = (transcript.clone(), deadline.left());
    tokio::spawn(async move {
        if tokio::time::timeout(limit, received.changed()).await.is_err() {
            tracing::debug!("no data from ssh_command yet");
        }
        drop(permit);
    });
    let stream = RecordingStream::new(stream, transcript.clone(), CancellationToken::new());
    let monitor = CommandMonitor { running, transcript, route, deadline };
    Ok(Tunnel { stream: Box::new(stream), monitor: Arc::new(monitor) })
}

struct CommandMonitor {
    running: Arc<Running>,
    transcript: Transcript,
    route: Route,
    deadline: Deadline,
}

#[async_trait]
impl TunnelMonitor for CommandMonitor {
    async fn close_reason(&self) -> Option<TransportError> {
        let printed = tunnel::wrapper_side(&self.transcript, &self.route)
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

    fn no_answer(&self, limit: Duration) -> Option<TransportError> {
        let nothing_came = self.transcript.first().is_empty();
        nothing_came.then(|| self.error(Phase::Command, Cause::TimedOut { limit }))
    }

    fn extra_time(&self) -> Duration {
        if !self.transcript.first().is_empty() {
            return Duration::ZERO;
        }
        // The start of the command does not count; a wait for other connections does.
        let (left, whole) = (self.deadline.left(), self.deadline.whole());
        if whole.saturating_sub(left) < COMMAND_START { whole } else { left }
    }

    fn transcript(&self) -> &Transcript {
        &self.transcript
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
