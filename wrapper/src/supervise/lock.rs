//! Lock files: the kernel lets go of them however their holder ends.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use tracing::warn;

use super::{
    lock_wait::{self, Attempt, Holder},
    trusted_dir::Folder,
};

/// A lock that is held until this value is dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

/// Locks the file `NAME.lock` in this folder, unless somebody who lives holds it. The file names its holder, for whoever comes second.
///
/// The file stays: removing it would let two processes hold locks on two files of one name.
pub(crate) async fn beside(folder: &Folder, name: &OsStr) -> io::Result<Attempt<Lock>> {
    lock_wait::take(|| try_beside(folder, name)).await
}

/// As [`beside`], once.
pub(crate) fn try_beside(folder: &Folder, name: &OsStr) -> io::Result<Attempt<Lock>> {
    let mut name = name.to_owned();
    name.push(".lock");
    let mut file = folder.open_or_create(&name)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            if let Err(error) = sign(&mut file) {
                warn!(%error, file = %folder.path().join(name).display(), "cannot write PID to lock file; lock is held");
            }
            Ok(Attempt::Ours(Lock(file)))
        }
        Err(Errno::WOULDBLOCK) => Ok(Attempt::Taken(signature(&mut file))),
        Err(errno) => Err(errno.into()),
    }
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

/// Nobody that is known, where the holder has not written yet, or is a wrapper that did not write.
fn signature(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.take(16).read_to_string(&mut text);
    Holder::new(read.ok().and_then(|_| text.trim().parse().ok()))
}

impl Drop for Lock {
    /// Says so in words, because closing is not enough: a process that is being started holds a copy of every descriptor from its fork to
    /// its exec, and the lock with it.
    fn drop(&mut self) {
        if let Err(errno) = flock(&self.0, FlockOperation::Unlock) {
            warn!(%errno, "cannot unlock a file; the lock is released when the file is closed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, thread, time::Duration};

    use super::*;

    async fn attempt(path: &Path) -> io::Result<Attempt<Lock>> {
        beside(&Folder::of(path).unwrap(), path.file_name().unwrap()).await
    }

    async fn locked(path: &Path) -> Lock {
        match attempt(path).await.unwrap() {
            Attempt::Ours(lock) => lock,
            Attempt::Taken(holder) => panic!("{holder}"),
        }
    }

    #[tokio::test]
    async fn copied_descriptor_does_not_keep_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        let held = locked(&path).await;
        let copy = held.0.try_clone().unwrap();
        let us = Holder::new(Some(std::process::id()));
        assert!(matches!(attempt(&path).await.unwrap(), Attempt::Taken(holder) if holder == us));
        drop(held);
        locked(&path).await;
        drop(copy);
    }

    #[tokio::test]
    async fn lock_file_symlink_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let (path, precious) = (folder.path().join("it"), folder.path().join("precious"));
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, folder.path().join("it.lock")).unwrap();
        let refused = attempt(&path).await.unwrap_err().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }

    /// As the child of a wrapper that was killed between fork and exec, and a wrapper of an earlier version, which names nobody.
    #[tokio::test]
    async fn leftover_lock_is_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("it"), folder.path().join("it.lock"));
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
