//! Lock files: the kernel lets go of them however their holder ends.

use std::{ffi::OsString, fs::File, io, os::unix::fs::OpenOptionsExt, path::Path};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// Locks `PATH.lock` for as long as the answer is kept; `None` when another process holds it.
///
/// The file stays: removing it would let two processes hold locks on two files of one name.
pub(crate) fn beside(path: &Path) -> io::Result<Option<File>> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(name)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
