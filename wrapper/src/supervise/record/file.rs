//! The file of the record, and its lock.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use thiserror::Error;
use tracing::warn;

use super::{
    folder::{self, beside},
    format::{self, Saved, Unreadable},
    lock::{self, Lock},
    recorder::StateFile,
};
use crate::supervise::lock_wait::{Attempt, LockOwner};

/// The state file, locked.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    /// `None`: there was no space for the lock file.
    _lock: Option<Lock>,
}

/// Why a state file cannot be used. Continuing without it could start a second runner, or a drained one.
#[derive(Debug, Error)]
pub enum RecordError {
    #[error(
        "--state-file {path:?}: in use by {holder}; only one wrapper can use it. Stop that wrapper first \
         (on SIGTERM it drains its runner), or use another file"
    )]
    Locked { path: PathBuf, holder: LockOwner },
    #[error("--state-file {path:?}: cannot {what}")]
    Io {
        path: PathBuf,
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// Another release wrote it, and it may contain values that must not be ignored.
    #[error(
        "--state-file {path:?}: has format {format:?}, written by a newer grit-wrapper; this version ({version}) supports format \
         {known:?}. Nothing was changed: {runner} may still be running. Start the newer grit-wrapper again, \
         which continues from this file. Before a downgrade, start a drained runner or let its drain end, and then remove the file",
        version = env!("CARGO_PKG_VERSION"),
        known = format::VERSION,
        runner = .runner.map_or_else(|| "a runner".to_owned(), |pid| format!("the runner (PID {pid})")),
    )]
    Newer { path: PathBuf, format: String, runner: Option<u32> },
    #[error(
        "--state-file {path:?}: invalid content. The runner of the previous wrapper may still be running: make sure that no runner is \
         running, then remove the file"
    )]
    Broken {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl Record {
    /// Locks the file, and reads the record of the previous wrapper. If that was killed and is still terminating, this waits up to 2 s.
    pub async fn open(path: &Path) -> Result<(Self, Option<Saved>), RecordError> {
        let io = |what| move |source| RecordError::Io { path: path.to_owned(), what, source };
        if path.file_name().is_none() {
            return Err(io("use a path without a file name")(io::ErrorKind::InvalidInput.into()));
        }
        folder::check(path).map_err(io("use its directory"))?;
        let lock = match lock::take(&beside(path, ".lock")).await {
            Ok(Attempt::Ours(lock)) => Some(lock),
            Ok(Attempt::Taken(holder)) => return Err(RecordError::Locked { path: path.to_owned(), holder }),
            Err(error) if has_no_space(&error) => {
                warn!(%error, path = %path.display(), "cannot create the lock file of the state file");
                None
            }
            Err(error) => return Err(io("lock its .lock file")(error)),
        };
        let saved = match read(path).map_err(io("read the file"))? {
            Some(text) => Some(Saved::parse(&text).map_err(|unreadable| match unreadable {
                Unreadable::OtherVersion { version, runner } => {
                    RecordError::Newer { path: path.to_owned(), format: version, runner }
                }
                Unreadable::Broken(source) => RecordError::Broken { path: path.to_owned(), source },
            })?),
            None => None,
        };
        Ok((Self { path: path.to_owned(), _lock: lock }, saved))
    }
}

impl StateFile for Record {
    fn exists(&self) -> bool {
        self.path.exists()
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let fresh = beside(&self.path, ".new");
        match fs::remove_file(&fresh) {
            // Left by a wrapper that was killed while writing.
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let written = folder::open(&fresh, OpenOptions::new().write(true).create_new(true))
            .and_then(|mut file| file.write_all(text))
            .and_then(|()| fs::rename(&fresh, &self.path));
        if written.is_err() {
            // On a full disk an incomplete file would occupy space.
            let _none = fs::remove_file(&fresh);
        }
        written
    }
}

/// The content of the file; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match folder::open(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(Some(text))
}

fn has_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[tokio::test]
    async fn planted_temporary_file_is_not_written() {
        let temporary = tempfile::tempdir().unwrap();
        let path = |name: &str| temporary.path().join(name);
        let (record, found) = Record::open(&path("state")).await.unwrap();
        assert_eq!(found, None);
        fs::write(path("precious"), "precious").unwrap();
        symlink("precious", path("state.new")).unwrap();
        record.replace(b"{}").unwrap();
        assert_eq!(fs::read_to_string(path("precious")).unwrap(), "precious");
        assert_eq!(fs::symlink_metadata(path("state")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(Record::open(&path("state")).await, Err(RecordError::Locked { .. })));
        record.replace(b"").unwrap();
        drop(record);
        let (_record, found) = Record::open(&path("state")).await.unwrap();
        assert_eq!(found, Some(Saved::default()));
    }

    #[tokio::test]
    async fn failed_write_changes_nothing() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("state");
        let (record, _) = Record::open(&path).await.unwrap();
        record.replace(b"").unwrap();
        fs::create_dir(beside(&path, ".new")).unwrap();
        assert!(record.replace(b"{}").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
}
