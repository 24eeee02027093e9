//! Where the runner's output goes, and what its last lines were.
//!
//! A runner writes straight to where the wrapper's stderr goes, and nothing of ours stands between: a pipe that ends in the wrapper would
//! kill the runner by SIGPIPE, or stall it, when the wrapper dies. So its last lines are read back from where they went, when a runner
//! has failed: from the journal, or from a regular file. What went to a pipe, a terminal or nowhere cannot be read back.

mod file;
mod journal;
mod redact;

use std::{io, os::fd::AsFd, pin::Pin, time::Duration};

use rustix::fs::{FileType, fstat};
use tokio::time::{Instant, timeout};
use tracing::debug;

use self::redact::presentable;

/// How long reading may take. Nothing waits for it but the text of a failure.
const LIMIT: Duration = Duration::from_secs(5);

/// The last lines of a runner's log, the oldest first; none when it wrote nothing, or they could not be read. Dropping it stops the reading.
pub type LastLines = Pin<Box<dyn Future<Output = Vec<String>> + Send>>;

/// Where a runner's stderr goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Journal,
    /// A file with this path, of which the runner wrote what stands behind `start`.
    File {
        path: String,
        start: u64,
    },
    /// To where nobody can read it back from.
    Elsewhere,
}

impl Output {
    /// Where the stderr of this process goes, which its children inherit. `journal_stream` is the value of `JOURNAL_STREAM`.
    #[must_use]
    pub fn of_stderr(journal_stream: Option<&str>) -> Self {
        let stderr = io::stderr();
        // systemd says which file the journal's stream is: it may have been redirected since.
        let is_journal = journal_stream.is_some_and(|stream| journal::is_stream(stderr.as_fd(), stream));
        match fstat(&stderr) {
            Ok(_) if is_journal => Self::Journal,
            // By the number, since the file may have been renamed by now.
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => {
                Self::File { path: "/proc/self/fd/2".to_owned(), start: 0 }
            }
            Ok(_) | Err(_) => Self::Elsewhere,
        }
    }

    /// A runner is about to be started: what was written until now is not its.
    pub fn begin(&mut self) {
        if let Self::File { path, start } = self {
            *start = std::fs::metadata(path).map_or(0, |file| file.len());
        }
    }

    /// Reads the last lines of the runner that was started at `since` with this number, and has ended. `None` when nobody can.
    ///
    /// Escape sequences, tokens and the paths of URLs are left out, and long lines are cut: the lines are shown to whoever may look.
    #[must_use]
    pub fn last_lines(&self, pid: u32, since: Instant) -> Option<LastLines> {
        let reading: Pin<Box<dyn Future<Output = io::Result<Vec<String>>> + Send>> = match self.clone() {
            Self::Journal => Box::pin(journal::read(pid, since.elapsed())),
            Self::File { path, start } => Box::pin(async move { file::read(&path, start) }),
            Self::Elsewhere => return None,
        };
        Some(Box::pin(async move {
            match timeout(LIMIT, reading).await {
                Ok(Ok(raw)) => presentable(&raw),
                Ok(Err(error)) => {
                    debug!(%error, pid, "cannot read the last lines of the runner's log");
                    Vec::new()
                }
                Err(_) => {
                    debug!(pid, limit = ?LIMIT, "timed out reading the last lines of the runner's log");
                    Vec::new()
                }
            }
        }))
    }
}
