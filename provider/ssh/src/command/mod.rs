//! A child process whose standard input and output carry a byte stream.
//!
//! The child has one end of a socket pair as both, so that closing the other end closes both. Its standard error is read continuously, and
//! the last part is kept for errors; an unread pipe would block the child. The child leads a process group, which ends with the
//! connection: first SIGTERM, then SIGKILL.

pub mod child;
pub(crate) mod error;
pub mod open_files;
pub(crate) mod template;

use std::{
    io,
    os::fd::OwnedFd,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    command::child::{LastPart, describe, supervise},
    command::error::CommandError,
    error::{Cause, TransportError},
    parent::ParentTransport,
    route::{Phase, Route},
};

/// The end of a stream is known before the exit status is.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(300);
/// Environment variables that contain the provider's secrets: no command inherits them. Tools need others (proxies, cloud credentials).
pub const SECRET_VARIABLES: [&str; 3] = ["GRIT_SSH_PRIVATE_KEY", "GRIT_SSH_PASSPHRASE", "GRIT_GITLAB_TOKEN"];

pub(crate) fn spawn(arguments: &[String]) -> Result<(UnixStream, Arc<Running>), Cause> {
    let program = arguments.first().cloned().unwrap_or_default();
    let failed = |error: io::Error| {
        Cause::Command(CommandError::NotStarted { program: program.clone(), source: error.into() })
    };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let output = theirs.try_clone().map_err(failed)?;
    let mut command = Command::new(&program);
    command
        .args(arguments.iter().skip(1))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(OwnedFd::from(output)))
        .stderr(Stdio::piped())
        .process_group(0);
    let inherited = std::env::vars_os().map(|(name, _)| name);
    for variable in inherited.filter(|name| is_secret(&name.to_string_lossy())) {
        command.env_remove(variable);
    }
    let child = command.spawn().map_err(failed)?;
    drop(command); // it holds the child's end of the pair open, and we would never see its end
    let stream = UnixStream::from_std(ours).map_err(failed)?;
    Ok((stream, Arc::new(Running::new(program, child))))
}

/// Terraform hands its whole environment on to us, with the values of its variables and its tokens in it; a command needs none of them.
fn is_secret(variable: &str) -> bool {
    SECRET_VARIABLES.contains(&variable)
        || ["TF_VAR_", "TF_TOKEN_"].iter().any(|start| variable.starts_with(start))
}

/// A program that was started. Dropping it ends its process group.
pub(crate) struct Running {
    program: String,
    status: watch::Receiver<Option<ExitStatus>>,
    stderr: LastPart,
    _end: DropGuard,
}

impl Running {
    fn new(program: String, mut child: Child) -> Self {
        let stderr = LastPart::default();
        let (kept, pipe) = (stderr.clone(), child.stderr.take());
        let (sender, status) = watch::channel(None);
        let end = CancellationToken::new();
        let supervision = supervise(child, end.clone());
        tokio::spawn(async move {
            let reading = async {
                if let Some(pipe) = pipe {
                    kept.read(pipe).await;
                }
            };
            tokio::join!(reading, async {
                if let Some(status) = supervision.await {
                    sender.send_replace(Some(status));
                }
            });
        });
        Self { program, status, stderr, _end: end.drop_guard() }
    }

    /// The exit status, if it ended or is about to.
    pub(crate) async fn exit_status(&self) -> Option<ExitStatus> {
        let mut status = self.status.clone();
        let ended = tokio::time::timeout(EXIT_STATUS_TIMEOUT, status.wait_for(Option::is_some)).await;
        ended.ok()?.ok().and_then(|status| *status)
    }

    /// The last part of what it wrote to its standard error.
    pub(crate) fn stderr(&self) -> Option<String> {
        self.stderr.text()
    }

    /// The error that its end is, if it ended.
    pub(crate) async fn end(&self, phase: Phase, route: Route) -> Option<TransportError> {
        let status = self.exit_status().await?;
        let cause =
            Cause::Command(CommandError::Ended { program: self.program.clone(), status: describe(status) });
        let mut error = TransportError::at(phase, route, cause);
        error.evidence.stderr = self.stderr();
        Some(error)
    }
}

/// Adds the exit of the command that carries an SSH session as the cause of an error. Its standard error is added in any case.
#[async_trait]
impl ParentTransport for Running {
    async fn enrich(&self, mut error: TransportError) -> TransportError {
        let of_stream =
            matches!(error.cause, Cause::Lost(_) | Cause::NotSsh | Cause::Network(_) | Cause::Protocol(_));
        if of_stream && let Some(status) = self.exit_status().await {
            error.cause = Cause::Command(CommandError::Ended {
                program: self.program.clone(),
                status: describe(status),
            });
        }
        error.evidence.stderr = self.stderr();
        error
    }
}
