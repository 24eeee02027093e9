//! Unix sockets. They have the right mode from the beginning, and replace an existing socket only if it is stale.
//!
//! A socket is in a directory that only root or the wrapper's user can write to. Whether an existing socket is in use shows a connection to it; a
//! killed wrapper may not have released it yet. Two wrappers with one state file cannot come here together: one of them has its lock.
//!
//! A socket whose file is gone has no clients. The wrapper creates the socket again, by the same rules as at its start.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
            net::UnixListener as StdListener,
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{Mode, fchmod},
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt::socket_peercred},
};
use tokio::{
    net::{UnixListener, UnixStream},
    time::sleep,
};
use tracing::{error, warn};

use super::{Address, ListenError, LostSockets};
use crate::supervise::{
    lock_wait::{self, Attempt, LockOwner},
    record::folder,
};

/// Size of Linux's `sun_path` without the closing zero.
const MAX_PATH: usize = 107;

/// Interval of checks whether the file of a socket is still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Listen backlog; Linux's limit (`net.core.somaxconn`) may be lower.
const BACKLOG: i32 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits; clients need write permission to connect.
    pub mode: u32,
    /// Name or GID of the socket's group. Default: the wrapper's group.
    pub group: Option<String>,
}

impl SocketAccess {
    /// The wrapper's user and group. Every client that can connect can stop the runner.
    pub const DEFAULT_MODE: u32 = 0o660;
}

impl Default for SocketAccess {
    fn default() -> Self {
        Self { mode: Self::DEFAULT_MODE, group: None }
    }
}

/// A listening socket. Dropping it removes its path, unless another file has it now.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file. While the socket is open, no other file gets them.
    file: (u64, u64),
    access: SocketAccess,
    /// Where a missing file is reported.
    lost: Option<LostSockets>,
}

impl UnixSocket {
    /// Reports a missing file there.
    pub(super) fn report_to(&mut self, lost: LostSockets) {
        self.lost = Some(lost);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection. Until then, creates the socket again if its file is gone.
    pub(crate) async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            tokio::select! {
                biased;
                accepted = self.listener.accept() => return accepted.map(|(stream, _)| stream),
                () = sleep(CHECK_INTERVAL) => self.check_file().await,
            }
        }
    }

    async fn check_file(&mut self) {
        let address = Address::Unix(self.path.clone());
        if identity(&self.path).ok() != Some(self.file) {
            match bind(&address, &self.path, &self.access).await {
                Ok(mut new) => {
                    warn!(path = %self.path.display(), "the wrapper's socket was removed; created it again");
                    new.lost = self.lost.take();
                    *self = new;
                }
                Err(error) => {
                    if let Some(lost) = &self.lost
                        && let Some(error) = lost.add(&address, error)
                    {
                        error!(
                            error,
                            "the wrapper's socket was removed, and cannot be created again; retrying every {CHECK_INTERVAL:?}"
                        );
                    }
                    return;
                }
            }
        }
        if let Some(lost) = &self.lost {
            lost.remove(&address);
        }
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if identity(&self.path).ok() == Some(self.file)
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!(%error, path = %self.path.display(), "cannot remove the wrapper's socket");
        }
    }
}

pub(super) async fn bind(
    address: &Address,
    path: &Path,
    access: &SocketAccess,
) -> Result<UnixSocket, ListenError> {
    if path.as_os_str().len() > MAX_PATH {
        return Err(ListenError::TooLong { address: address.clone() });
    }
    let group = access.group.as_deref().map(group_id).transpose()?;
    folder::check(path).map_err(io(address, "use the socket's directory"))?;
    if let Attempt::Taken(holder) = lock_wait::take(|| clear(address, path)).await? {
        return Err(ListenError::Alive { address: address.clone(), holder });
    }
    let bound = listen(path).map_err(io(address, "listen"))?;
    let listener = UnixListener::from_std(bound).map_err(io(address, "listen"))?;
    let file = identity(path).map_err(io(address, "inspect the new socket"))?;
    let (path, access) = (path.to_owned(), access.clone());
    let socket = UnixSocket { listener, path, file, access, lost: None };
    let (path, access) = (socket.path(), &socket.access);
    // The group before the mode, because chown can clear mode bits.
    if group.is_some() {
        chown(path, None, group).map_err(io(address, "set --socket-group"))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(access.mode))
        .map_err(io(address, "set --socket-mode"))?;
    Ok(socket)
}

/// Creates a listener with mode 0000, so that no client can connect before group and mode are set.
///
/// On Linux the path gets the mode that the socket has at bind (a test below checks this). A umask would apply to the whole process.
fn listen(path: &Path) -> io::Result<StdListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::empty())?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn io(address: &Address, what: &'static str) -> impl FnOnce(io::Error) -> ListenError {
    let address = address.clone();
    move |source| ListenError::Io { address, what, source }
}

/// The GID of a group. A group of a directory service must be given by GID.
fn group_id(group: &str) -> Result<u32, ListenError> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    let all = fs::read_to_string("/etc/group").unwrap_or_default();
    let mut lines = all.lines().map(|line| line.split(':'));
    let found = lines.find_map(|mut line| (line.next() == Some(group)).then(|| line.nth(1)?.parse().ok())?);
    found.ok_or_else(|| ListenError::NoSuchGroup { group: group.to_owned() })
}

/// Removes a stale socket.
fn clear(address: &Address, path: &Path) -> Result<Attempt<()>, ListenError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Attempt::Ours(())),
        Err(error) => return Err(io(address, "inspect the path")(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket { address: address.clone(), path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match listener(path) {
        Ok(holder) => Ok(Attempt::Taken(holder)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            warn!(path = %path.display(), "replacing a stale socket");
            fs::remove_file(path).map_err(io(address, "remove the stale socket"))?;
            Ok(Attempt::Ours(()))
        }
        Err(error) => Err(io(address, "determine whether the existing socket is in use")(error)),
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

#[cfg(test)]
mod tests;
