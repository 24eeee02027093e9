//! Lock files: the kernel lets go of them however their holder ends.

use std::{ffi::OsString, fs::File, io, os::unix::fs::OpenOptionsExt, path::Path};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use tracing::warn;

/// A lock that is held until this value is dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

/// Locks `PATH.lock`; `None` when somebody else holds it.
///
/// The file stays: removing it would let two processes hold locks on two files of one name.
pub(crate) fn beside(path: &Path) -> io::Result<Option<Lock>> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(name)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

impl Drop for Lock {
    /// Says so in words, because closing is not enough: a process that is being started holds a copy of every descriptor from its fork to
    /// its exec, and the lock with it.
    fn drop(&mut self) {
        if let Err(errno) = flock(&self.0, FlockOperation::Unlock) {
            warn!(%errno, "cannot unlock a file; it is unlocked when it is closed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        let held = beside(&path).unwrap().unwrap();
        let copy = held.0.try_clone().unwrap();
        assert!(beside(&path).unwrap().is_none());
        drop(held);
        assert!(beside(&path).unwrap().is_some());
        drop(copy);
    }
}
