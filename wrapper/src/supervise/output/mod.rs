//! Destination of the runner's output, and its last lines.
//!
//! The runner inherits the wrapper's stderr. A pipe through the wrapper would block the runner, or kill it with SIGPIPE, when the wrapper
//! exits. After a failure the last lines are read back from the journal or from a regular file, and after a drain texts are searched for. Output
//! to a pipe or a terminal cannot be read back.

mod file;
mod journal;
mod redact;

use std::{fs, io, os::fd::AsFd, pin::Pin, time::Duration};

use rustix::fs::{FileType, fstat};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use self::redact::presentable;
use crate::supervise::{blocking, log_key as key};

/// Timeout of reading the length of the log before a start. Without it, lines of the earlier runner count as the new one's.
const BEGIN_LIMIT: Duration = Duration::from_secs(1);

/// Timeout of reading. Only the text of the failure waits for it.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Timeout of a search. The end of a drain is reported after it, because its outcome depends on it.
const SEARCH_LIMIT: Duration = Duration::from_secs(2);

/// The last lines of a runner's log, oldest first; empty if there are none, or if they cannot be read. Dropping it cancels the read.
pub type LastLines = Pin<Box<dyn Future<Output = Vec<String>> + Send>>;

/// Destination of a runner's stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Journal,
    /// A file with this path; the runner's lines begin at `start`. Lines after `search_start` are certainly not of an earlier runner.
    File {
        path: String,
        start: u64,
        search_start: u64,
    },
    /// A destination that cannot be read back.
    Elsewhere,
}

impl Output {
    /// Destination of this process' stderr, which its children inherit. `journal_stream` is the value of `JOURNAL_STREAM`.
    pub fn of_stderr(journal_stream: Option<&str>) -> Self {
        let stderr = io::stderr();
        // `JOURNAL_STREAM` identifies the journal's stream, because stderr may have been redirected.
        let is_journal = journal_stream.is_some_and(|stream| journal::is_stream(stderr.as_fd(), stream));
        match fstat(&stderr) {
            Ok(_) if is_journal => Self::Journal,
            // Identified by inode, because the file may have been renamed.
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => {
                // Which lines are of an adopted runner is unknown.
                let search_start = u64::try_from(stat.st_size).unwrap_or_default();
                Self::File { path: "/proc/self/fd/2".to_owned(), start: 0, search_start }
            }
            Ok(_) | Err(_) => Self::Elsewhere,
        }
    }

    /// Marks the start of a new runner: earlier lines are not from this runner.
    pub async fn begin(&mut self) {
        if let Self::File { path, start, search_start } = self {
            let path = path.clone();
            let length = blocking::run("log", BEGIN_LIMIT, move || Ok(fs::metadata(path)?.len()));
            *start = length.await.unwrap_or_default();
            *search_start = *start;
        }
    }

    /// Reads the last lines of the runner with this PID that was started at `since` and has exited. `None` if they cannot be read.
    ///
    /// Escape sequences, tokens and URL paths are removed, and long lines are shortened, because users with read-only access can see them.
    pub fn last_lines(&self, pid: u32, since: Instant) -> Option<LastLines> {
        let reading: Pin<Box<dyn Future<Output = io::Result<Vec<String>>> + Send>> = match self.clone() {
            Self::Journal => Box::pin(journal::read(pid, since.elapsed())),
            Self::File { path, start, .. } => {
                Box::pin(blocking::run("log", READ_LIMIT, move || file::read(&path, start)))
            }
            Self::Elsewhere => return None,
        };
        Some(Box::pin(async move {
            match timeout(READ_LIMIT, reading).await {
                Ok(Ok(raw)) => presentable(&raw),
                Ok(Err(error)) => {
                    debug!(
                        { key::ERROR } = %error,
                        { key::PID } = pid,
                        "cannot read the last lines of the runner's log"
                    );
                    Vec::new()
                }
                Err(_) => {
                    debug!(
                        { key::PID } = pid,
                        { key::LIMIT_SECONDS } = READ_LIMIT.as_secs(),
                        "timed out reading the last lines of the runner's log"
                    );
                    Vec::new()
                }
            }
        }))
    }

    /// For each text, whether the runner with this PID, which has exited, wrote it after `since`; false if the log cannot be read in time.
    pub async fn contains<const N: usize>(
        &self,
        texts: [&'static str; N],
        pid: u32,
        since: Instant,
    ) -> [bool; N] {
        let found = match self.clone() {
            Self::Journal => timeout(SEARCH_LIMIT, journal::contains(texts, pid, since.elapsed()))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            Self::File { path, search_start, .. } => {
                blocking::run("log", SEARCH_LIMIT, move || file::contains(&path, search_start, texts)).await
            }
            Self::Elsewhere => return [false; N],
        };
        found.unwrap_or_else(|error| {
            warn!(
                { key::ERROR } = %error,
                { key::PID } = pid,
                "cannot search the runner's log for aborted jobs and lost results of jobs during the drain"
            );
            [false; N]
        })
    }
}
