//! The runner managers of another deployment version: the output [`OUTPUT`] of another Terraform state.
//!
//! The state is read from a file, or by running `terraform output` in the directory of that version. Nothing is written there,
//! and no state is locked.

use grit_ssh::user_files;
mod command;
mod format;

use std::{path::PathBuf, time::Duration};

use serde_json::Value as Json;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use command::{CommandError, Directory};
pub(crate) use format::{FormatError, OUTPUT};

/// How long the end of a command may take after the timeout or the stop.
const LAST_STEPS: Duration = Duration::from_secs(4);

/// Where the outputs are read.
#[derive(Clone)]
pub(crate) enum Source {
    File(PathBuf),
    Directory(Directory),
}

impl Source {
    /// The attribute of the configuration that names the source.
    pub(crate) fn attribute(&self) -> &'static str {
        match self {
            Self::File(_) => "state_path",
            Self::Directory(_) => "directory",
        }
    }
}

/// The limits of a read.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) stop: CancellationToken,
    pub(crate) timeout: Duration,
    pub(crate) start: Instant,
}

/// Why the output was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("{0}")]
    File(String),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("not read in time")]
    TimedOut(Duration),
    #[error("interrupted")]
    Interrupted,
}

/// Reads the value of the output.
pub(crate) async fn read(source: Source, limits: &Limits) -> Result<Json, ReadError> {
    let end = CancellationToken::new();
    let guard = end.clone().drop_guard();
    let mut reading = tokio::spawn(read_to_end(source, end));
    let error = tokio::select! {
        biased;
        () = limits.stop.cancelled() => ReadError::Interrupted,
        () = sleep_until(limits.start + limits.timeout) => ReadError::TimedOut(limits.timeout),
        result = &mut reading => {
            return result.unwrap_or_else(|lost| Err(ReadError::File(lost.to_string())));
        }
    };
    // The command's process group has ended when this returns. A file on a server that does not respond is not waited for.
    drop(guard);
    let _ = timeout(LAST_STEPS, reading).await;
    Err(error)
}

async fn read_to_end(source: Source, end: CancellationToken) -> Result<Json, ReadError> {
    let text = match source {
        Source::File(path) => {
            let read = move || user_files::read_up_to(&path, format::LARGEST);
            let read = tokio::task::spawn_blocking(read).await;
            read.unwrap_or_else(|lost| Err(lost.to_string())).map_err(ReadError::File)?
        }
        Source::Directory(directory) => directory.outputs(&end).await?,
    };
    Ok(format::read(&text)?)
}

#[cfg(test)]
mod tests;
