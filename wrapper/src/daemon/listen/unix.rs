//! Unix sockets. They have the right mode from the beginning, and replace an existing socket only if it is stale.
//!
//! A lock file beside the socket (`PATH.lock`) is held while the wrapper is running. The kernel releases the lock when the wrapper exits
//! for any reason, so the lock shows reliably whether the socket is in use, and two wrappers that start together cannot both find the old
//! socket stale. A listener that does not use the lock, such as upstream's wrapper, is detected by connecting to it. This also detects a
//! killed wrapper that has released its lock, but not yet its socket.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, fchmod, openat},
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt::socket_peercred},
};
use tracing::warn;

use super::{Address, ListenError};
use crate::supervise::log_key as key;
use crate::{
    daemon::access,
    supervise::{
        lock::{self, Lock},
        lock_wait::{self, Attempt, LockOwner},
        trusted_dir::TrustedDir,
    },
};

/// Size of Linux's `sun_path` without the closing zero.
const MAX_PATH: usize = 107;

/// Listen backlog; Linux's limit (`net.core.somaxconn`) may be lower.
const BACKLOG: i32 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits; clients need write permission to connect.
    pub mode: u32,
    /// Name or UID of the socket's owner. Default: the wrapper's user.
    pub owner: Option<String>,
    /// Name or GID of the socket's group. Default: the wrapper's group.
    pub group: Option<String>,
}

impl SocketAccess {
    /// The wrapper's user and group. Every client that can connect can stop the runner.
    pub const DEFAULT_MODE: u32 = 0o660;
}

impl Default for SocketAccess {
    fn default() -> Self {
        Self { mode: Self::DEFAULT_MODE, owner: None, group: None }
    }
}

/// A listening socket. Dropping a socket that the wrapper created removes its path, unless the path was replaced.
#[derive(Debug)]
pub struct UnixSocket {
    listener: Option<tokio::net::UnixListener>,
    path: PathBuf,
    /// `None` for a socket passed by systemd.
    bound_socket: Option<BoundSocket>,
}

#[derive(Debug)]
struct BoundSocket {
    /// Device and inode.
    identity: (u64, u64),
    _lock: Lock,
}

impl UnixSocket {
    /// A socket that systemd created and removes.
    pub(super) fn passed(listener: tokio::net::UnixListener, path: PathBuf) -> Self {
        Self { listener: Some(listener), path, bound_socket: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listener, once; the path is removed when this value is dropped.
    pub(crate) fn take(&mut self) -> Option<tokio::net::UnixListener> {
        self.listener.take()
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if let Some(bound_socket) = &self.bound_socket
            && identity(&self.path).is_ok_and(|found| found == bound_socket.identity)
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

pub(super) async fn bind(
    address: &Address,
    path: &Path,
    access: &SocketAccess,
) -> Result<UnixSocket, ListenError> {
    let io = |what| move |source| ListenError::Io { address: address.clone(), what, source };
    if path.as_os_str().len() > MAX_PATH {
        return Err(ListenError::TooLong { address: address.clone() });
    }
    let owner = access.owner.as_deref().map(user_id).transpose()?;
    let group = access.group.as_deref().map(group_id).transpose()?;
    let alive = |holder| ListenError::Alive { address: address.clone(), holder };
    let name = path
        .file_name()
        .ok_or_else(|| io("use a path without a file name")(io::ErrorKind::InvalidInput.into()))?;
    let folder = TrustedDir::shared(path).map_err(io("open the socket's directory"))?;
    let lock = match lock::lock_file_for(&folder, name).await.map_err(io("lock the socket's .lock file"))? {
        Attempt::Ours(lock) => lock,
        Attempt::Taken(holder) => return Err(alive(holder)),
    };
    match lock_wait::take(|| clear(address, path)).await? {
        Attempt::Ours(()) => {}
        Attempt::Taken(holder) => return Err(alive(holder)),
    }

    let bound = listen(path).map_err(io("listen"))?;
    let identity = identity(path).map_err(io("inspect the new socket"))?;
    let bound_socket = Some(BoundSocket { identity, _lock: lock });
    let mut socket = UnixSocket { listener: None, path: path.to_owned(), bound_socket };
    let bound_socket = Entry::open(&folder, name, identity).map_err(io("inspect the new socket"))?;
    // The group before the mode, because chown can clear mode bits; the owner last, because the mode of another user's file cannot be set.
    if let Some(group) = group {
        bound_socket.give(None, Some(group)).map_err(io("set --socket-group"))?;
    }
    bound_socket.set_mode(access.mode).map_err(io("set --socket-mode"))?;
    if let Some(owner) = owner {
        bound_socket.give(Some(owner), None).map_err(io("set --socket-owner"))?;
    }
    socket.listener = Some(tokio::net::UnixListener::from_std(bound).map_err(io("listen"))?);
    Ok(socket)
}

/// Creates a listener with mode 0000, so that no client can connect before owner and mode are set.
///
/// On Linux the path gets the mode that the socket has at bind (a test below checks this). A umask would apply to the whole process.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::empty())?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The socket's directory entry, opened as a descriptor. Owner and mode are set through the descriptor: through the path, a link placed
/// there meanwhile could redirect the change to another file.
struct Entry(OwnedFd);

impl Entry {
    fn open(folder: &TrustedDir, name: &OsStr, identity: (u64, u64)) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = Self(openat(folder.descriptor(), name, flags, Mode::empty())?);
        let found = fs::metadata(entry.path())?;
        if (found.dev(), found.ino()) == identity {
            Ok(entry)
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the socket was replaced by another file"))
        }
    }

    fn give(&self, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        Ok(chownat(&self.0, "", owner, group, AtFlags::EMPTY_PATH)?)
    }

    /// Linux does not accept an O_PATH descriptor for this, but accepts its path below /proc.
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(self.path(), fs::Permissions::from_mode(mode))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

fn user_id(user: &str) -> Result<u32, ListenError> {
    access::user_id(user).map_err(|_| ListenError::NoSuchUser { user: user.to_owned() })
}

fn group_id(group: &str) -> Result<u32, ListenError> {
    access::group_id(group).map_err(|_| ListenError::NoSuchGroup { group: group.to_owned() })
}

/// Removes a stale socket.
fn clear(address: &Address, path: &Path) -> Result<Attempt<()>, ListenError> {
    let io = |what| move |source| ListenError::Io { address: address.clone(), what, source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Attempt::Ours(())),
        Err(error) => return Err(io("inspect the path")(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket { address: address.clone(), path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match listener(path) {
        Ok(holder) => Ok(Attempt::Taken(holder)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            warn!({ key::PATH } = %path.display(), "replacing a stale socket");
            fs::remove_file(path).map_err(io("remove the stale socket"))?;
            Ok(Attempt::Ours(()))
        }
        Err(error) => Err(io("determine whether the existing socket is in use")(error)),
    }
}

/// The process that listens on a socket, found by connecting to it. It never blocks, because a listener with a full backlog would block it
/// indefinitely.
fn listener(path: &Path) -> io::Result<LockOwner> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => {
            let peer = socket_peercred(&socket)?;
            Ok(LockOwner::new(u32::try_from(peer.pid.as_raw_pid()).ok()))
        }
        // The listen backlog is full.
        Err(Errno::AGAIN) => Ok(LockOwner::new(None)),
        Err(errno) => Err(errno.into()),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_has_configured_mode_and_is_removed_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.sock");
        let address = Address::Unix(path.clone());
        let socket =
            bind(&address, &path, &SocketAccess { mode: 0o620, ..SocketAccess::default() }).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o620);
        assert!(matches!(
            bind(&address, &path, &SocketAccess::default()).await,
            Err(ListenError::Alive { .. })
        ));
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn new_socket_has_mode_0000() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.sock");
        let _socket = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0);
    }

    #[tokio::test]
    async fn stale_socket_is_replaced_foreign_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.sock");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let ours = bind(&address, &path, &SocketAccess::default()).await.unwrap();

        // Another process replaces the socket: the new file is not removed.
        fs::remove_file(&path).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
        assert!(matches!(
            bind(&address, &path, &SocketAccess::default()).await,
            Err(ListenError::Alive { .. })
        ));
        drop(theirs);

        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        let refused = bind(&address, &path, &SocketAccess::default()).await;
        assert!(matches!(refused, Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
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
        let bound_socket = identity(&path).unwrap();
        let entry = Entry::open(&folder, OsStr::new("w.sock"), bound_socket).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        entry.set_mode(0o777).unwrap();
        assert_eq!(fs::metadata(&precious).unwrap().permissions(), before);
        assert!(Entry::open(&folder, OsStr::new("w.sock"), bound_socket).is_err());
    }

    #[tokio::test]
    async fn too_long_socket_path_is_rejected() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(104)));
        let refused = bind(&Address::Unix(path.clone()), &path, &SocketAccess::default()).await;
        assert!(matches!(refused, Err(ListenError::TooLong { .. })));
    }
}
