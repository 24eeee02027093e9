//! The lock of the record: the kernel releases it when its owner exits for any reason.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use tracing::warn;

use super::folder;
use crate::supervise::lock_wait::{self, Attempt, LockOwner};

/// A lock, held until this value is dropped.
#[derive(Debug)]
pub(super) struct Lock(File);

/// Locks this file, unless another running process holds the lock. The file contains the owner's PID, for error messages.
///
/// The file is never removed: otherwise two processes could hold locks on two files with the same name.
pub(super) async fn take(path: &Path) -> io::Result<Attempt<Lock>> {
    lock_wait::take(|| try_take(path)).await
}

fn try_take(path: &Path) -> io::Result<Attempt<Lock>> {
    let mut file = match folder::open(path, OpenOptions::new().read(true).write(true).create(true)) {
        // An existing file can still be locked.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            folder::open(path, OpenOptions::new().read(true)).map_err(|_| error)?
        }
        opened => opened?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // The PID is for messages only.
            let _none = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(Attempt::Ours(Lock(file)))
        }
        Err(Errno::WOULDBLOCK) => Ok(Attempt::Taken(read_pid(&mut file))),
        Err(errno) => Err(errno.into()),
    }
}

/// Unknown if the owner has not written its PID.
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
            warn!(error = %errno, "cannot unlock the lock file; closing the file releases the lock");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread, time::Duration};

    use super::*;

    async fn locked(path: &Path) -> Lock {
        match take(path).await.unwrap() {
            Attempt::Ours(lock) => lock,
            Attempt::Taken(owner) => panic!("{owner}"),
        }
    }

    #[tokio::test]
    async fn copied_descriptor_does_not_keep_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("it.lock");
        let held = locked(&path).await;
        let copy = held.0.try_clone().unwrap();
        let us = LockOwner::new(Some(std::process::id()));
        assert!(matches!(take(&path).await.unwrap(), Attempt::Taken(owner) if owner == us));
        drop(held);
        locked(&path).await;
        drop(copy);
    }

    #[tokio::test]
    async fn lock_file_symlink_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let (path, precious) = (directory.path().join("it.lock"), directory.path().join("precious"));
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        let refused = take(&path).await.unwrap_err().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }

    /// As a child between fork and exec of a killed wrapper.
    #[tokio::test]
    async fn lock_of_exited_process_is_retried_until_free() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("it.lock");
        for text in ["4294967295\n", "", "what\n"] {
            fs::write(&file, text).unwrap();
            let left = File::open(&file).unwrap();
            flock(&left, FlockOperation::LockExclusive).unwrap();
            let goes = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                drop(left);
            });
            locked(&file).await;
            goes.join().unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", std::process::id()));
        }
    }
}
