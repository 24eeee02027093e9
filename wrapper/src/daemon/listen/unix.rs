//! Unix sockets. They have the right mode from the beginning, and replace an existing socket only if it is stale.
//!
//! A lock file beside the socket (`PATH.lock`) is held while the wrapper is running. The kernel releases the lock when the wrapper exits
//! for any reason, so the lock shows reliably whether the socket is in use, and two wrappers that start together cannot both find the old
//! socket stale. A listener that does not use the lock, such as upstream's wrapper, is detected by connecting to it. This also detects a
//! killed wrapper that has released its lock, but not yet its socket.
//!
//! A socket that was removed or replaced meanwhile is created again.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt::socket_peercred},
};
use tokio::{
    net::{UnixListener, UnixStream},
    time::{Instant, sleep_until},
};
use tracing::{error, warn};

use super::{
    Address, ListenError,
    socket_file::{self, Entry, SocketFile},
};
use crate::supervise::log_key as key;
use crate::{
    daemon::access,
    supervise::{
        lock::{self, Lock},
        lock_wait::{self, Attempt, LockOwner},
        trusted_dir::TrustedDir,
        watch::Watch,
    },
};

/// Size of Linux's `sun_path` without the closing zero.
const MAX_PATH: usize = 107;

/// Delay before a removed socket that could not be created again is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

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
    listener: UnixListener,
    path: PathBuf,
    /// `None` for a socket passed by systemd.
    place: Option<Box<Place>>,
}

/// Where the wrapper keeps a socket that it created.
#[derive(Debug)]
struct Place {
    name: OsString,
    permissions: Permissions,
    folder: TrustedDir,
    lock: Lock,
    file: SocketFile,
    watch: Option<Watch>,
    retry_at: Option<Instant>,
    /// The error that was logged last.
    failure: Option<String>,
}

/// [`SocketAccess`] with numbers.
#[derive(Debug)]
struct Permissions {
    mode: u32,
    owner: Option<u32>,
    group: Option<u32>,
}

impl UnixSocket {
    /// A socket that systemd created and removes.
    pub(super) fn passed(listener: UnixListener, path: PathBuf) -> Self {
        Self { listener, path, place: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection. If the socket was removed or replaced, it is bound again meanwhile. Connections that were accepted stay open.
    pub(crate) async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            tokio::select! {
                biased;
                // Before the listener is replaced.
                accepted = self.listener.accept() => return accepted.map(|(stream, _)| stream),
                () = disturbed(self.place.as_deref()) => {}
            }
            if let Some(place) = &mut self.place
                && let Some(listener) = place.restore(&self.path).await
            {
                self.listener = listener;
            }
        }
    }
}

/// Waits until the socket may have been removed, or is to be tried again.
async fn disturbed(place: Option<&Place>) {
    let never = std::future::pending;
    match place {
        // A failed attempt removes the socket that it has bound: that is no reason to try again sooner.
        Some(Place { retry_at: Some(at), .. }) => sleep_until(*at).await,
        Some(Place { watch: Some(watch), .. }) => watch.removed().await,
        _ => never().await,
    }
}

impl Place {
    /// Binds the socket again if it was removed or replaced. A failure is logged once, and tried again later.
    async fn restore(&mut self, path: &Path) -> Option<UnixListener> {
        match self.bind_again(path).await {
            Ok(listener) => {
                (self.retry_at, self.failure) = (None, None);
                if listener.is_some() {
                    warn!(
                        { key::PATH } = %path.display(),
                        "the socket was removed or replaced; listening on it again"
                    );
                }
                listener
            }
            Err(error) => {
                let failure = format!("{:#}", anyhow::Error::new(error));
                if self.failure.as_ref() != Some(&failure) {
                    if self.file.is_in_place() {
                        warn!(
                            { key::ERROR } = failure,
                            "the socket's lock file was removed or replaced, and cannot be locked; trying again"
                        );
                    } else {
                        error!(
                            { key::ERROR } = failure,
                            "the socket was removed or replaced, and clients cannot connect; trying again"
                        );
                    }
                }
                self.failure = Some(failure);
                self.retry_at = Some(Instant::now() + RETRY_DELAY);
                None
            }
        }
    }

    async fn bind_again(&mut self, path: &Path) -> Result<Option<UnixListener>, ListenError> {
        let address = Address::Unix(path.to_owned());
        if !self.folder.is_in_place() {
            let folder = self.folder.again(path, TrustedDir::shared);
            self.folder = folder.map_err(io(&address, "open the socket's directory"))?;
            self.watch = watch(&self.folder, &self.name);
        }
        let again = self.lock.again(&self.folder, &self.name);
        match again.map_err(io(&address, "lock the socket's .lock file"))? {
            None => {}
            Some(Attempt::Ours(lock)) => self.lock = lock,
            Some(Attempt::Taken(holder)) => return Err(ListenError::Alive { address, holder }),
        }
        if self.file.is_in_place() {
            return Ok(None);
        }
        let (listener, file) = create(&address, path, &self.folder, &self.name, &self.permissions).await?;
        self.file = file;
        Ok(Some(listener))
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
    let owner = access.owner.as_deref().map(user_id).transpose()?;
    let group = access.group.as_deref().map(group_id).transpose()?;
    let permissions = Permissions { mode: access.mode, owner, group };
    let name = path
        .file_name()
        .ok_or_else(|| io(address, "use a path without a file name")(io::ErrorKind::InvalidInput.into()))?;
    let folder = TrustedDir::shared(path).map_err(io(address, "open the socket's directory"))?;
    let locked = lock::lock_file_for(&folder, name).await;
    let lock = match locked.map_err(io(address, "lock the socket's .lock file"))? {
        Attempt::Ours(lock) => lock,
        Attempt::Taken(holder) => return Err(ListenError::Alive { address: address.clone(), holder }),
    };
    let watch = watch(&folder, name);
    let (listener, file) = create(address, path, &folder, name, &permissions).await?;
    let name = name.to_owned();
    let place = Place { name, permissions, folder, lock, file, watch, retry_at: None, failure: None };
    Ok(UnixSocket { listener, path: path.to_owned(), place: Some(Box::new(place)) })
}

fn watch(folder: &TrustedDir, name: &OsStr) -> Option<Watch> {
    Watch::new(folder, vec![name.to_owned(), lock::lock_file_name(name)], true)
}

fn io(address: &Address, what: &'static str) -> impl FnOnce(io::Error) -> ListenError {
    let address = address.clone();
    move |source| ListenError::Io { address, what, source }
}

/// Replaces a stale socket. The caller holds the lock.
async fn create(
    address: &Address,
    path: &Path,
    folder: &TrustedDir,
    name: &OsStr,
    permissions: &Permissions,
) -> Result<(UnixListener, SocketFile), ListenError> {
    if let Attempt::Taken(holder) = lock_wait::take(|| clear(address, path)).await? {
        return Err(ListenError::Alive { address: address.clone(), holder });
    }
    let bound = socket_file::listen(path).map_err(io(address, "listen"))?;
    let file = SocketFile::of(path).map_err(io(address, "inspect the new socket"))?;
    let entry = Entry::open(folder, name, &file).map_err(io(address, "inspect the new socket"))?;
    // The group before the mode, because chown can clear mode bits; the owner last, because the mode of another user's file cannot be set.
    if let Some(group) = permissions.group {
        entry.give(None, Some(group)).map_err(io(address, "set --socket-group"))?;
    }
    entry.set_mode(permissions.mode).map_err(io(address, "set --socket-mode"))?;
    if let Some(owner) = permissions.owner {
        entry.give(Some(owner), None).map_err(io(address, "set --socket-owner"))?;
    }
    Ok((UnixListener::from_std(bound).map_err(io(address, "listen"))?, file))
}

fn user_id(user: &str) -> Result<u32, ListenError> {
    access::user_id(user).map_err(|_| ListenError::NoSuchUser { user: user.to_owned() })
}

fn group_id(group: &str) -> Result<u32, ListenError> {
    access::group_id(group).map_err(|_| ListenError::NoSuchGroup { group: group.to_owned() })
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
            warn!({ key::PATH } = %path.display(), "replacing a stale socket");
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
mod tests {
    use std::os::unix::{fs::PermissionsExt, net::UnixListener};

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

    #[tokio::test]
    async fn too_long_socket_path_is_rejected() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(104)));
        let refused = bind(&Address::Unix(path.clone()), &path, &SocketAccess::default()).await;
        assert!(matches!(refused, Err(ListenError::TooLong { .. })));
    }
}
