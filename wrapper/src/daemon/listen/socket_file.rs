//! The file of a unix socket: created with its mode and owner, and removed.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, fchmod, openat},
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};
use tracing::warn;

use crate::supervise::{log_key as key, trusted_dir::TrustedDir};

/// Listen backlog; Linux's limit (`net.core.somaxconn`) may be lower.
const BACKLOG: i32 = 128;

/// The file of a socket that the wrapper created. Dropping it removes the file, unless it was replaced.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode. While the socket is open, no other file gets them.
    identity: (u64, u64),
}

impl SocketFile {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }

    /// Whether the path still leads to it.
    pub(super) fn is_in_place(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!(
                { key::ERROR } = %error,
                { key::PATH } = %self.path.display(),
                "cannot remove the wrapper's socket"
            );
        }
    }
}

/// Creates a listener with mode 0000, so that no client can connect before owner and mode are set.
///
/// On Linux the path gets the mode that the socket has at bind (a test below checks this). A umask would apply to the whole process.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::empty())?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The socket's directory entry, opened as a descriptor. Owner and mode are set through the descriptor: through the path, a link placed
/// there meanwhile could redirect the change to another file.
pub(super) struct Entry(OwnedFd);

impl Entry {
    pub(super) fn open(folder: &TrustedDir, name: &OsStr, file: &SocketFile) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = Self(openat(folder.descriptor(), name, flags, Mode::empty())?);
        let found = fs::metadata(entry.path())?;
        if (found.dev(), found.ino()) == file.identity {
            Ok(entry)
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the socket was replaced by another file"))
        }
    }

    pub(super) fn give(&self, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        Ok(chownat(&self.0, "", owner, group, AtFlags::EMPTY_PATH)?)
    }

    /// Linux does not accept an O_PATH descriptor for this, but accepts its path below /proc.
    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(self.path(), fs::Permissions::from_mode(mode))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_socket_has_mode_0000() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.sock");
        let _socket = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0);
    }

    /// Simulates another user of the directory who replaces the file in time.
    #[test]
    fn file_that_replaces_socket_keeps_owner_and_mode() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("w.sock");
        let precious = temporary.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let before = fs::metadata(&precious).unwrap().permissions();
        let folder = TrustedDir::shared(&path).unwrap();
        let _socket = listen(&path).unwrap();
        let file = SocketFile::of(&path).unwrap();
        let entry = Entry::open(&folder, OsStr::new("w.sock"), &file).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        entry.set_mode(0o777).unwrap();
        assert_eq!(fs::metadata(&precious).unwrap().permissions(), before);
        assert!(Entry::open(&folder, OsStr::new("w.sock"), &file).is_err());
    }
}
