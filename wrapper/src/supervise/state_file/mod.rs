//! The state file, for the next wrapper if this one is killed: the child, and the requests for it.
//!
//! It is one small file, which is replaced atomically before each step that it describes. On a full disk it is overwritten, in space that was
//! reserved before. After the wrapper was killed, the next wrapper adopts the child that the file names, and continues a drain. A wrapper that
//! exits normally empties the file: an empty file means that no runner is running. It contains the headers of callbacks, so only the wrapper's
//! user can read it. It is not synced to disk: a reboot ends the runner anyway, and leaves at most an empty file.
//! [`crate::supervise::trusted_dir`] ensures that no other user has written it.

mod adoption;
mod format;
mod times;

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;
use tracing::warn;

#[cfg(test)]
pub(crate) use self::adoption::handed_over;
use self::format::{SavedChild, Unreadable};
pub use self::{adoption::Found, format::Saved};
use super::{
    lock::{self, Lock},
    lock_wait::{Attempt, LockOwner},
    trusted_dir::{FileId, TrustedDir},
    watch::Watch,
};
use crate::supervise::log_key as key;

/// The state file. Each call can block as long as the disk does.
pub trait StateStorage: Send + 'static {
    /// Replaces the file atomically, or overwrites it if the disk is full.
    /// After an error, the file is unchanged.
    fn write(&mut self, saved: &Saved) -> io::Result<()>;

    /// Whether the last written file, or its lock file, was removed or replaced.
    fn is_missing(&self) -> bool;

    /// The watch for the file's removal, once after opening, and again each time the directory was reopened.
    fn watch(&mut self) -> Option<Watch>;

    /// Empties the file: no runner is running, and the next wrapper has nothing to continue.
    fn empty(&mut self) -> io::Result<()>;
}

/// The state file, locked.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    folder: TrustedDir,
    name: OsString,
    written: Option<FileId>,
    watch: Option<Watch>,
    lock: Lock,
}

/// Why a state file cannot be used. Continuing without it could start a second runner.
#[derive(Debug, Error)]
pub enum StoreError {
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
        "--state-file {path:?}: has format {format:?}, written by a newer grit-wrapper; this version \
         ({version}) supports format {known:?}. Nothing was changed: {runner} may still be running. Start \
         the newer grit-wrapper again; it adopts the runner. To downgrade, first stop the service with \
         the newer version, which drains the runner and removes the file",
        version = env!("CARGO_PKG_VERSION"),
        known = format::VERSION,
        runner = .runner.map_or_else(|| "a runner".to_owned(), |pid| format!("the runner (PID {pid})")),
    )]
    Newer { path: PathBuf, format: String, runner: Option<u32> },
    #[error(
        "--state-file {path:?}: invalid content. A runner of the previous wrapper may still be running: \
         check that no runner is running, then remove the file"
    )]
    Broken {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl Store {
    /// Locks the file, and reads the state of the previous wrapper. If that was killed and is still terminating, this waits up to 2 s.
    pub async fn open(path: &Path) -> Result<(Self, Option<Saved>), StoreError> {
        let io = |what| move |source| StoreError::Io { path: path.to_owned(), what, source };
        let name = path
            .file_name()
            .ok_or_else(|| io("use a path without a file name")(io::ErrorKind::InvalidInput.into()))?;
        let folder = TrustedDir::of(path).map_err(io("use its directory"))?;
        let lock = match lock::lock_file_for(&folder, name).await.map_err(io("lock its .lock file"))? {
            Attempt::Ours(lock) => lock,
            Attempt::Taken(holder) => return Err(StoreError::Locked { path: path.to_owned(), holder }),
        };
        let saved = match folder.read(name).map_err(io("read the file"))? {
            // A wrapper exited normally, or the power failed, which also ended the runner.
            Some(text) if text.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace()) => {
                Some(Saved::nothing())
            }
            Some(text) => Some(Saved::parse(&text).map_err(|unreadable| match unreadable {
                Unreadable::OtherVersion { version, runner } => {
                    StoreError::Newer { path: path.to_owned(), format: version, runner }
                }
                Unreadable::Broken(source) => StoreError::Broken { path: path.to_owned(), source },
            })?),
            None => None,
        };
        let watch = watch(&folder, name);
        let (path, name) = (path.to_owned(), name.to_owned());
        Ok((Self { path, folder, name, written: None, watch, lock }, saved))
    }

    fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        let mut fresh = self.name.clone();
        fresh.push(".new");
        let written = self.folder.replace(&self.name, &fresh, text).or_else(|error| {
            if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
                return Err(error);
            }
            let overwritten = self.folder.overwrite(&self.name, text).map_err(|other| {
                io::Error::new(error.kind(), format!("{error}; the previous file cannot be overwritten: {other}"))
            })?;
            warn!({ key::ERROR } = %error, "the disk of the state file is full; the previous file was overwritten");
            Ok(overwritten)
        });
        self.written = Some(written?);
        Ok(())
    }

    /// Opens the directory that the path leads to now, after the previous one was removed or renamed. A removed directory is created again:
    /// its service manager creates it only at the next start, and the next wrapper would not find the runner.
    fn reopen(&mut self) -> io::Result<()> {
        self.folder = self.folder.again(&self.path, TrustedDir::of)?;
        self.watch = watch(&self.folder, &self.name);
        self.written = None;
        Ok(())
    }

    /// Locks the lock file again if it was removed or replaced. Fails if another process holds it: the state file is then that process's, and
    /// with it the runner, if that process has described `runner` in it. Fails also if another wrapper held it meanwhile and left a runner: the
    /// file is for the wrapper that adopts that one.
    fn hold_lock(&mut self, runner: Option<&SavedChild>) -> io::Result<()> {
        let Some(attempt) = self.lock.again(&self.folder, &self.name)? else { return Ok(()) };
        let theirs = self.folder.read(&self.name)?.and_then(|text| Saved::parse(&text).ok()?.child);
        let is_ours =
            |theirs: &SavedChild| runner.is_some_and(|runner| runner.identity.is_same(&theirs.identity));
        match (attempt, theirs) {
            (Attempt::Ours(_), Some(theirs))
                if !is_ours(&theirs) && theirs.identity.is_alive().unwrap_or(true) =>
            {
                let pid = theirs.identity.pid;
                Err(io::Error::other(format!("it describes the runner of another wrapper, PID {pid}")))
            }
            (Attempt::Ours(lock), _) => {
                self.lock = lock;
                Ok(())
            }
            // Until it has written the file, it has not adopted the runner.
            (Attempt::Taken(holder), Some(theirs))
                if is_ours(&theirs) && self.folder.find(&self.name)? != self.written =>
            {
                Err(io::Error::other(TakenOver(holder)))
            }
            (Attempt::Taken(holder), _) => Err(io::Error::other(format!("in use by {holder}"))),
        }
    }
}

fn watch(folder: &TrustedDir, name: &OsStr) -> Option<Watch> {
    Watch::new(folder, vec![name.to_owned(), lock::lock_file_name(name)], false)
}

/// Another wrapper has the state file, and supervises its runner.
#[derive(Debug, Error)]
#[error("in use by {0}")]
pub(crate) struct TakenOver(LockOwner);

impl StateStorage for Store {
    fn write(&mut self, saved: &Saved) -> io::Result<()> {
        if !self.folder.is_in_place() {
            self.reopen()?;
        }
        self.hold_lock(saved.child.as_ref())?;
        self.replace(&serde_json::to_vec(saved)?)
    }

    fn is_missing(&self) -> bool {
        let found = self.folder.find(&self.name).ok().flatten();
        !self.folder.is_in_place()
            || !self.lock.is_in_place(&self.folder, &self.name).unwrap_or_default()
            || self.written.is_some_and(|written| found != Some(written))
    }

    fn watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    fn empty(&mut self) -> io::Result<()> {
        if !self.folder.is_in_place() {
            return Ok(());
        }
        self.hold_lock(None)?;
        self.replace(b"")
    }
}
