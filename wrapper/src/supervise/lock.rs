//! Lock files: the kernel releases them when their owner exits for any reason.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
};

use rustix::{
    fs::{FlockOperation, flock, fstat},
    io::Errno,
};
use tracing::warn;

use super::{
    lock_wait::{self, Attempt, LockOwner},
    trusted_dir::{FileId, TrustedDir},
};
use crate::supervise::log_key as key;

/// A lock, held until this value is dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

/// Locks the file `NAME.lock` in this directory, unless another running process holds the lock. The file contains the owner's PID, for
/// error messages.
///
/// The file is never removed: otherwise two processes could hold locks on two files with the same name.
pub(crate) async fn lock_file_for(directory: &TrustedDir, name: &OsStr) -> io::Result<Attempt<Lock>> {
    lock_wait::take(|| try_lock_file_for(directory, name)).await
}

/// As [`lock_file_for`], without waiting.
pub(crate) fn try_lock_file_for(directory: &TrustedDir, name: &OsStr) -> io::Result<Attempt<Lock>> {
    let name = lock_file_name(name);
    let mut file = directory.open_or_create(&name)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            if let Err(error) = write_pid(&mut file) {
                warn!(
                    { key::ERROR } = %error,
                    { key::PATH } = %directory.path().join(name).display(),
                    "cannot write PID to lock file; lock is held"
                );
            }
            Ok(Attempt::Ours(Lock(file)))
        }
        Err(Errno::WOULDBLOCK) => Ok(Attempt::Taken(read_pid(&mut file))),
        Err(errno) => Err(errno.into()),
    }
}

/// `NAME.lock`.
pub(crate) fn lock_file_name(name: &OsStr) -> OsString {
    let mut name = name.to_owned();
    name.push(".lock");
    name
}

impl Lock {
    /// Whether the file `NAME.lock` is still the one that is locked.
    pub(crate) fn is_in_place(&self, directory: &TrustedDir, name: &OsStr) -> io::Result<bool> {
        let found = directory.find(&lock_file_name(name))?;
        Ok(found == Some(FileId::new(&fstat(&self.0)?)))
    }

    /// A new lock, if the file `NAME.lock` was removed or replaced: another process could lock it, too. `None` if it was not.
    pub(crate) fn again(&self, directory: &TrustedDir, name: &OsStr) -> io::Result<Option<Attempt<Lock>>> {
        if self.is_in_place(directory, name)? {
            return Ok(None);
        }
        try_lock_file_for(directory, name).map(Some)
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

/// Unknown if the owner has not written its PID yet, or is an older wrapper.
fn read_pid(file: &mut File) -> LockOwner {
    let mut text = String::new();
    let read = file.take(16).read_to_string(&mut text);
    LockOwner::new(read.ok().and_then(|_| text.trim().parse().ok()))
}

impl Drop for Lock {
    /// Unlocks explicitly, because closing is not enough: between fork and exec a child has copies of all descriptors, and so holds the
    /// lock.
    fn drop(&mut self) {
        if let Err(errno) = flock(&self.0, FlockOperation::Unlock) {
            warn!(
                { key::ERROR } = %errno,
                "cannot unlock lock file; the lock is released when the file is closed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, thread, time::Duration};

    use super::*;

    async fn attempt(path: &Path) -> io::Result<Attempt<Lock>> {
        lock_file_for(&TrustedDir::of(path).unwrap(), path.file_name().unwrap()).await
    }

    async fn locked(path: &Path) -> Lock {
        match attempt(path).await.unwrap() {
            Attempt::Ours(lock) => lock,
            Attempt::Taken(owner) => panic!("{owner}"),
        }
    }

    #[tokio::test]
    async fn copied_descriptor_does_not_keep_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("it");
        let held = locked(&path).await;
        let copy = held.0.try_clone().unwrap();
        let us = LockOwner::new(Some(std::process::id()));
        assert!(matches!(attempt(&path).await.unwrap(), Attempt::Taken(owner) if owner == us));
        drop(held);
        locked(&path).await;
        drop(copy);
    }

    #[tokio::test]
    async fn lock_file_symlink_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let (path, precious) = (directory.path().join("it"), directory.path().join("precious"));
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, directory.path().join("it.lock")).unwrap();
        let refused = attempt(&path).await.unwrap_err().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }

    /// As a child between fork and exec of a killed wrapper, and as a wrapper of an earlier version, which writes no PID.
    #[tokio::test]
    async fn lock_of_exited_process_is_retried_until_free() {
        let directory = tempfile::tempdir().unwrap();
        let (path, file) = (directory.path().join("it"), directory.path().join("it.lock"));
        for text in ["4294967295\n", "", "what\n"] {
            fs::write(&file, text).unwrap();
            let left = File::open(&file).unwrap();
            flock(&left, FlockOperation::LockExclusive).unwrap();
            let goes = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                drop(left);
            });
            locked(&path).await;
            goes.join().unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", std::process::id()));
        }
    }
}
