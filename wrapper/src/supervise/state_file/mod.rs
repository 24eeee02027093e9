//! What the next wrapper has to know when this one is killed: the child, and what was asked of it.
//!
//! One small file, replaced as a whole before anything is done that it tells of. A wrapper that ends in good order removes it, so a
//! file that is found means that its writer did not: then the child is adopted, and a drain goes on. It holds the headers of
//! callbacks, and is readable for the wrapper's user alone. It is not synced to disk: it outlives a process, and a reboot ends what it
//! tells of, so that an empty one is as good as none. It is acted upon, so [`crate::supervise::trusted_dir`] takes care that nobody else has written it.

mod adoption;
mod format;
mod times;
mod watch;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;
use tracing::{debug, warn};

#[cfg(test)]
pub(crate) use self::adoption::handed_over;
use self::format::Unreadable;
pub(crate) use self::watch::Watch;
pub use self::{adoption::Found, format::Saved};
use super::{
    lock::{self, Lock},
    lock_wait::{Attempt, LockOwner},
    trusted_dir::{FileId, Folder},
};

/// The state file. Each call may take as long as the disk does.
pub trait Keep: Send + 'static {
    /// Replaces the file as a whole.
    ///
    /// # Errors
    ///
    /// Those of writing; the file is as it was before.
    fn write(&mut self, saved: &Saved) -> io::Result<()>;

    /// Whether the file that was written last is not there any more.
    fn is_missing(&self) -> bool;

    /// What tells of the file's removal, once after it was opened, and after each time that it had to be opened in another folder.
    fn watch(&mut self) -> Option<Watch>;

    /// Removes the file.
    ///
    /// # Errors
    ///
    /// Those of removing; that there is none is no error.
    fn remove(&mut self) -> io::Result<()>;
}

/// The state file, locked.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    folder: Folder,
    name: OsString,
    /// The file as it was written last.
    written: Option<FileId>,
    watch: Option<Watch>,
    _lock: Lock,
}

/// Why a state file cannot be used. Going on without one could start a second runner.
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
    /// It was written by another release, which alone knows what must not be overlooked in it.
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
         make sure that none is, then remove the file"
    )]
    Broken {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl Store {
    /// Locks the file, and reads what an earlier wrapper left in it. One that was killed and still ends is waited for, for 2 s.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn open(path: &Path) -> Result<(Self, Option<Saved>), StoreError> {
        let io = |what| move |source| StoreError::Io { path: path.to_owned(), what, source };
        let name = path
            .file_name()
            .ok_or_else(|| io("use a path without a file name")(io::ErrorKind::InvalidInput.into()))?;
        let folder = Folder::of(path).map_err(io("use its directory"))?;
        let lock = match lock::lock_file_for(&folder, name).await.map_err(io("lock its lock file"))? {
            Attempt::Ours(lock) => lock,
            Attempt::Taken(holder) => return Err(StoreError::Locked { path: path.to_owned(), holder }),
        };
        let saved = match folder.read(name).map_err(io("read it"))? {
            // No writer that was killed leaves this, since files are replaced as a whole; a machine that lost its power does.
            Some(text) if text.iter().all(|byte| *byte == 0) => {
                warn!(path = %path.display(), "the state file is empty, probably after a power loss; assuming that no runner is running");
                None
            }
            Some(text) => Some(Saved::parse(&text).map_err(|unreadable| match unreadable {
                Unreadable::OtherVersion { version, runner } => {
                    StoreError::Newer { path: path.to_owned(), format: version, runner }
                }
                Unreadable::Broken(source) => StoreError::Broken { path: path.to_owned(), source },
            })?),
            None => None,
        };
        let watch = Watch::new(&folder, name)
            .inspect_err(|error| debug!(%error, "cannot watch the directory of the state file"))
            .ok();
        let (path, name) = (path.to_owned(), name.to_owned());
        Ok((Self { path, folder, name, written: None, watch, _lock: lock }, saved))
    }

    /// Takes the folder that the path leads to now, in place of one that was removed or has got another name.
    fn reopen(&mut self) -> io::Result<()> {
        let folder = Folder::of(&self.path)?;
        let lock = match lock::try_lock_file_for(&folder, &self.name)? {
            Attempt::Ours(lock) => lock,
            Attempt::Taken(holder) => return Err(io::Error::other(format!("in use by {holder}"))),
        };
        self.watch = Watch::new(&folder, &self.name).ok();
        (self.folder, self._lock, self.written) = (folder, lock, None);
        Ok(())
    }
}

impl Keep for Store {
    fn write(&mut self, saved: &Saved) -> io::Result<()> {
        if !self.folder.is_in_place() {
            self.reopen()?;
        }
        let mut fresh = self.name.clone();
        fresh.push(".new");
        self.written = Some(self.folder.replace(&self.name, &fresh, &serde_json::to_vec(saved)?)?);
        Ok(())
    }

    fn is_missing(&self) -> bool {
        let found = self.folder.find(&self.name).ok().flatten();
        !self.folder.is_in_place() || self.written.is_some_and(|written| found != Some(written))
    }

    fn watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    fn remove(&mut self) -> io::Result<()> {
        self.folder.remove(&self.name)
    }
}
