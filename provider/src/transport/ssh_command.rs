//! `ssh_command`: a command whose standard input and output *are* the connection to the wrapper. The command brings its own user, keys and
//! trust; nothing here knows SSH.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::transport::{
    command::{self, Running},
    error::{Cause, Observations, Phase, Route, TransportError},
    limits::Deadline,
    settings::ConnectionMethod,
    shared::Shared,
    stream::{RecordingStream, Transcript},
    target::Target,
    template::{Template, TemplateError},
    tunnel::{self, Tunnel, TunnelMonitor},
};

/// How long starting a command takes at most, without waiting for other connections.
const START: Duration = Duration::from_secs(1);

const METHOD: ConnectionMethod = ConnectionMethod::SshCommand;

pub(crate) async fn open(
    shared: &Arc<Shared>,
    target: &Target,
    template: &Result<Template, TemplateError>,
    deadline: Deadline,
) -> Result<Tunnel, TransportError> {
    let route = target.route(METHOD);
    let failed = |phase: Phase| {
        let route = route.clone();
        move |cause| TransportError::at(phase, route, cause)
    };
    let username = target.login.username.as_deref();
    let expanded = template.clone().and_then(|template| template.expand(target, username));
    let arguments = expanded.map_err(|error| failed(Phase::Setup)(error.cause(METHOD)))?;
    let permit = shared.handshakes.enter(&target.address, deadline).await.map_err(failed(Phase::Setup))?;
    let (stream, running) = command::spawn(&arguments).map_err(failed(Phase::Command))?;
    let transcript = Transcript::default();
    // The command runs its own handshake. It is over when the wrapper is heard, which speaks first.
    let (heard, limit) = (transcript.clone(), deadline.left());
    tokio::spawn(async move {
        if tokio::time::timeout(limit, heard.changed()).await.is_err() {
            tracing::debug!("no data from ssh_command yet");
        }
        drop(permit);
    });
    let tap = RecordingStream::new(stream, transcript.clone(), CancellationToken::new());
    let monitor = CommandMonitor { running, transcript, route, deadline };
    Ok(Tunnel { stream: Box::new(tap), monitor: Arc::new(monitor) })
}

/// Knows why a command carries nothing any more.
struct CommandMonitor {
    running: Arc<Running>,
    transcript: Transcript,
    route: Route,
    /// When the connection has to stand.
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
        // The moment that starting the command took does not count; a wait for other connections does.
        let (left, whole) = (self.deadline.left(), self.deadline.whole());
        if whole.saturating_sub(left) < START { whole } else { left }
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
        error.evidence = Box::new(Observations { stderr: self.running.stderr(), ..Observations::default() });
        error
    }
}
