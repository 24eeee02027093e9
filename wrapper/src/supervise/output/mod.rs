//! Destination of the runner's output, and its last lines.
//!
//! The runner inherits the wrapper's stderr. A pipe through the wrapper would block the runner, or kill it with SIGPIPE, when the wrapper
//! exits. After a failure the last lines are read back from the journal or from a regular file, and after a drain texts are searched for. Output
//! to a pipe or a terminal cannot be read back.

mod file;
mod journal;
mod redact;

use std::{
    fs::{self, File, Metadata},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::MetadataExt,
    },
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use rustix::fs::{FileType, fstat};
use serde::{Deserialize, Serialize};
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
#[derive(Clone, Debug)]
pub enum Output {
    Journal,
    /// A file with this path; the runner's lines begin at `start`. Lines after `search_start` are certainly not of an earlier runner.
    File {
        path: String,
        start: u64,
        search_start: u64,
        /// Keeps the path of an adopted runner's file valid.
        held: Option<Arc<File>>,
    },
    /// A destination that cannot be read back.
    Elsewhere,
}

/// The file of a runner's stderr at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStart {
    device: u64,
    inode: u64,
    length: u64,
}

impl LogStart {
    fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino(), length: file.len() }
    }
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
                Self::File { path: "/proc/self/fd/2".to_owned(), start: 0, search_start, held: None }
            }
            Ok(_) | Err(_) => Self::Elsewhere,
        }
    }

    /// Marks the start of a new runner: earlier lines are not from this runner.
    pub async fn begin(&mut self) -> Option<LogStart> {
        let Self::File { path, start, search_start, .. } = self else { return None };
        let path = path.clone();
        let found = blocking::run("log", BEGIN_LIMIT, move || Ok(LogStart::of(&fs::metadata(path)?)));
        let found = found.await.ok();
        *start = found.map_or(0, |found| found.length);
        *search_start = *start;
        found
    }

    /// Destination of the stderr of a runner with this PID, which an earlier wrapper has started with `saved`. It can differ from the stderr of
    /// this process, for example after log rotation.
    pub async fn of_adopted(&self, pid: u32, saved: Option<LogStart>) -> Self {
        let opened = blocking::run("log", BEGIN_LIMIT, move || {
            let open = |path: &str| -> io::Result<_> {
                // Opening a pipe or a terminal could have an effect on its other users.
                if !fs::metadata(path)?.is_file() {
                    return Ok(None);
                }
                let file = File::open(path)?;
                let found = LogStart::of(&file.metadata()?);
                Ok(Some((file, found)))
            };
            // A runner that has just exited has no descriptors. Usually its log is the stderr of this process, too.
            open(&format!("/proc/{pid}/fd/2")).or_else(|_| open("/proc/self/fd/2"))
        });
        let (file, found) = match opened.await {
            Ok(Some(opened)) => opened,
            Ok(None) if matches!(self, Self::Journal) => return Self::Journal,
            Ok(None) => return Self::Elsewhere,
            Err(error) => {
                warn!({ key::ERROR } = %error, { key::PID } = pid, "cannot open the log of the adopted runner");
                return self.clone();
            }
        };
        let is_same = |saved: &LogStart| (saved.device, saved.inode) == (found.device, found.inode);
        let saved = saved.filter(is_same).map(|saved| saved.length);
        if saved.is_none() {
            warn!(
                { key::PID } = pid,
                "it is unknown where the log of the adopted runner begins; its earlier lines are not searched for \
                 aborted jobs and lost results of jobs"
            );
        }
        Self::File {
            path: format!("/proc/self/fd/{}", file.as_raw_fd()),
            start: saved.unwrap_or_default(),
            search_start: saved.unwrap_or(found.length),
            held: Some(Arc::new(file)),
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

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use super::*;

    #[tokio::test]
    async fn log_of_adopted_runner_begins_at_its_start_if_that_is_known() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"earlier\n").unwrap();
        let saved = LogStart::of(&file.as_file().metadata().unwrap());
        file.write_all(b"of the runner\n").unwrap();
        let found = async |stderr: Stdio, saved| {
            let mut runner = Command::new("cat").stdin(Stdio::piped()).stderr(stderr).spawn().unwrap();
            let found = Output::Elsewhere.of_adopted(runner.id(), saved).await;
            // `wait` closes its stdin, so that it exits.
            runner.wait().unwrap();
            match found {
                Output::File { start, search_start, .. } => Some((start, search_start)),
                Output::Journal | Output::Elsewhere => None,
            }
        };
        let stderr = || file.reopen().unwrap().into();
        assert_eq!(found(stderr(), Some(saved)).await, Some((8, 8)));
        assert_eq!(found(stderr(), None).await, Some((0, 22)));
        assert_eq!(found(stderr(), Some(LogStart { inode: saved.inode + 1, ..saved })).await, Some((0, 22)));
        assert_eq!(found(Stdio::piped(), Some(saved)).await, None);
    }
}
