//! `ssh_command`: a command whose standard input and output *are* the connection to the wrapper. The command brings its own user, keys and
//! trust; we know nothing of SSH here.

use crate::transport::{
    Evidence, Inner, Phase, Route, Strategy, Target, TransportError, Tunnel, Witness,
    command::{self, Running},
    error::Cause,
    limits::Deadline,
    proxy_command::unusable,
    stream::{Tap, Transcript},
    template::{Template, TemplateError},
};
use async_trait::async_trait;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// How long starting a command takes at most, without waiting for other connections.
const START: Duration = Duration::from_secs(1);

/// The command, as far as it could be read.
#[derive(Debug)]
pub(crate) struct SshCommand(pub(crate) Result<Template, TemplateError>);

#[async_trait]
impl Strategy for SshCommand {
    fn name(&self) -> &'static str {
        "ssh_command"
    }

    async fn open(
        &self,
        inner: &Arc<Inner>,
        target: &Target,
        deadline: Deadline,
    ) -> Result<Tunnel, TransportError> {
        let route = Route::of(target, self.name());
        let username = inner.options.username.as_ref().or(target.username.as_ref());
        let expanded = self.0.clone().and_then(|it| it.expand(target, username.map(String::as_str)));
        let arguments = expanded.map_err(|error| {
            TransportError::at(Phase::Setup, route.clone(), unusable(self.name(), &error))
        })?;
        let turn = inner.gate.enter(&target.address, deadline).await;
        let turn = turn.map_err(|cause| TransportError::at(Phase::Setup, route.clone(), cause))?;
        let (stream, running) = command::spawn(&arguments)
            .map_err(|cause| TransportError::at(Phase::Command, route.clone(), cause))?;
        let transcript = Transcript::default();
        // The command runs its own handshake. It is over when the wrapper is heard, which speaks first.
        let (heard, limit) = (transcript.clone(), deadline.left());
        tokio::spawn(async move {
            if tokio::time::timeout(limit, heard.changed()).await.is_err() {
                tracing::debug!("no data from ssh_command yet");
            }
            drop(turn);
        });
        let tap = Tap::new(stream, transcript.clone(), CancellationToken::new());
        let witness = CommandWitness { running, transcript, route, deadline };
        Ok(Tunnel { stream: Box::new(tap), witness: Arc::new(witness) })
    }
}

/// Tells why a command carries nothing any more.
struct CommandWitness {
    running: Arc<Running>,
    transcript: Transcript,
    route: Route,
    /// When the connection has to stand.
    deadline: Deadline,
}

#[async_trait]
impl Witness for CommandWitness {
    async fn testimony(&self) -> Option<TransportError> {
        let printed = crate::transport::wrapper_side(&self.transcript, &self.route)
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

    fn silence(&self, limit: Duration) -> Option<TransportError> {
        let nothing_came = self.transcript.first().is_empty();
        nothing_came.then(|| self.error(Phase::Command, Cause::TimedOut { limit }))
    }

    fn patience(&self) -> Duration {
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

impl CommandWitness {
    fn error(&self, phase: Phase, cause: Cause) -> TransportError {
        let mut error = TransportError::at(phase, self.route.clone(), cause);
        error.evidence = Box::new(Evidence { stderr: self.running.stderr(), ..Evidence::default() });
        error
    }
}
