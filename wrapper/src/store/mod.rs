//! What the next wrapper has to know when this one is killed: the child, and what was asked of it.
//!
//! One small file, replaced as a whole before anything is done that it tells of. A wrapper that ends in good order removes it, so a
//! file that is found means that its writer did not: then the child is adopted, and a drain goes on. It holds the headers of
//! callbacks, and is readable for the wrapper's user alone. It is not synced to disk: it outlives a process, and a reboot ends what it
//! tells of, so that an empty one is as good as none.

mod clock;
mod saved;

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use thiserror::Error;
use tracing::{error, warn};

use self::saved::Unreadable;
#[cfg(test)]
pub(crate) use self::saved::handed_over;
pub use self::saved::{Found, Saved};
use crate::{
    holder::{Attempt, Holder},
    lock::{self, Lock},
    process::Identity,
    supervisor::Supervision,
};

/// The state file, locked.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    last: Option<Saved>,
    _lock: Lock,
}

/// Why a state file cannot be used. Going on without one could start a second runner.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error(
        "--state-file {path:?}: {holder} uses it. One wrapper can: end that one first (SIGTERM lets its runner finish its jobs), or give this \
         one another file"
    )]
    Locked { path: PathBuf, holder: Holder },
    #[error("--state-file {path:?}: cannot {what}")]
    Io {
        path: PathBuf,
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// It was written by another release, which alone knows what must not be overlooked in it.
    #[error(
        "--state-file {path:?}: is of a newer grit-wrapper (form {form:?}; this is {version}, which knows form {known:?}). Nothing was \
         changed: {runner} may still run. Start the newer grit-wrapper again, which goes on with it. To go back to this one, first stop \
         the service with the newer one, which drains the runner and removes the file",
        version = env!("CARGO_PKG_VERSION"),
        known = saved::FORM,
        runner = .runner.map_or_else(|| "a runner".to_owned(), |pid| format!("the runner, process {pid},")),
    )]
    Newer { path: PathBuf, form: String, runner: Option<u32> },
    #[error(
        "--state-file {path:?}: cannot be understood. A runner of an earlier wrapper may still run: make sure that none does, and \
         remove the file"
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
        let lock = match lock::beside(path).await.map_err(io("lock the file beside it"))? {
            Attempt::Ours(lock) => lock,
            Attempt::Taken(holder) => return Err(StoreError::Locked { path: path.to_owned(), holder }),
        };
        let saved = match fs::read(path) {
            // No writer that was killed leaves this, since files are replaced as a whole; a machine that lost its power does.
            Ok(text) if text.iter().all(|byte| *byte == 0) => {
                warn!(path = %path.display(), "the state file is empty, as after a loss of power, which ended the runner as well");
                None
            }
            Ok(text) => Some(Saved::parse(&text).map_err(|unreadable| match unreadable {
                Unreadable::OtherForm { form, runner } => {
                    StoreError::Newer { path: path.to_owned(), form, runner }
                }
                Unreadable::Broken(source) => StoreError::Broken { path: path.to_owned(), source },
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io("read it")(error)),
        };
        Ok((Self { path: path.to_owned(), last: saved.clone(), _lock: lock }, saved))
    }

    /// Replaces what is kept, if it differs.
    ///
    /// # Errors
    ///
    /// Those of writing; the file is as it was before.
    pub(crate) fn save(&mut self, supervision: &Supervision, child: Option<&Identity>) -> io::Result<()> {
        let saved = Saved::new(supervision, child);
        if self.last.as_ref() == Some(&saved) {
            return Ok(());
        }
        let mut fresh = self.path.clone().into_os_string();
        fresh.push(".new");
        replace(&self.path, Path::new(&fresh), &serde_json::to_vec(&saved)?).inspect_err(|_| {
            // On a full disk even the half of a file is in the way.
            let _not_made = fs::remove_file(&fresh);
        })?;
        self.last = Some(saved);
        Ok(())
    }

    /// Ends in good order: there is nothing for the next wrapper to take up.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            error!(%error, path = %self.path.display(), "cannot remove the state file");
        }
    }
}

/// Writes `fresh`, which then takes the place of `path`.
fn replace(path: &Path, fresh: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(lock::NO_LINK);
    let mut file = options.open(fresh)?;
    file.write_all(text)?;
    drop(file);
    fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("precious"), "precious").unwrap();
        std::os::unix::fs::symlink(path("precious"), path("state.new")).unwrap();
        let refused = replace(&path("state"), &path("state.new"), b"{}").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        assert_eq!(fs::read_to_string(path("precious")).unwrap(), "precious");
    }
}
