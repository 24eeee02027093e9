//! The Unix socket, in a directory with access only for this user.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Pid;
use tempfile::TempDir;
use thiserror::Error;
use tokio::net::UnixListener;

/// Linux allows 107 bytes, other systems fewer.
const MAX_SOCKET_PATH: usize = 100;

/// A younger directory without a listener is kept: its process may be about to listen.
const STALE_SOCKET_AGE: Duration = Duration::from_secs(60);

/// The socket of this process. Dropping it removes the directory.
pub(super) struct Socket {
    path: PathBuf,
    folder: TempDir,
    parent: PathBuf,
    prefix: String,
}

#[derive(Debug, Error)]
pub(super) enum SocketError {
    #[error("cannot create a directory for the socket in {}", parent.display())]
    Folder { parent: PathBuf, source: io::Error },
    #[error("cannot listen on {}", path.display())]
    Listen { path: PathBuf, source: io::Error },
    #[error(
        "the socket path would be too long in each of {parents:?}; set TMPDIR (or PLUGIN_UNIX_SOCKET_DIR, if it is set) to a directory \
         with a shorter path"
    )]
    Path { parents: Vec<PathBuf> },
}

impl Socket {
    /// Listens in a new directory (mode 0700) in the first of `parents` that allows a short path.
    pub(super) fn bind(parents: &[PathBuf], name: &str) -> Result<(Self, UnixListener), SocketError> {
        let prefix = format!("tfp-{name}-");
        for parent in parents {
            let error = |source| SocketError::Folder { parent: parent.clone(), source };
            let folder = tempfile::Builder::new()
                .prefix(&format!("{prefix}{}-", std::process::id()))
                // Without this, the umask applies.
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(parent)
                .map_err(error)?;
            let path = folder.path().join("s");
            if path.as_os_str().len() > MAX_SOCKET_PATH {
                continue;
            }
            let error = |source| SocketError::Listen { path: path.clone(), source };
            let listener = UnixListener::bind(&path).map_err(error)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(error)?;
            return Ok((Self { path, folder, parent: parent.clone(), prefix }, listener));
        }
        Err(SocketError::Path { parents: parents.to_vec() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directories of killed processes of this provider. Blocks: the parent directory may be large.
    pub(super) fn remove_stale(&self) -> impl FnOnce() + Send + 'static {
        let (parent, prefix, own) = (self.parent.clone(), self.prefix.clone(), self.folder.path().to_owned());
        move || {
            for folder in stale(&parent, &prefix).into_iter().filter(|folder| *folder != own) {
                match fs::remove_dir_all(&folder) {
                    Ok(()) => {
                        tracing::debug!(directory = %folder.display(), "removed the socket directory of a killed process");
                    }
                    Err(error) => {
                        tracing::debug!(directory = %folder.display(), error = %error, "cannot remove a stale socket directory");
                    }
                }
            }
        }
    }
}

fn stale(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let stale = entries.filter_map(Result::ok).filter(|entry| {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(prefix)?.split_once('-')?.0.parse().ok());
        pid.is_some_and(|pid| is_stale(&entry.path(), pid))
    });
    stale.map(|entry| entry.path()).collect()
}

/// Whether the directory is unused: its process has exited, and no process listens (another container can share the directory and have the
/// same PIDs).
fn is_stale(folder: &Path, pid: i32) -> bool {
    let ours = fs::symlink_metadata(folder)
        .is_ok_and(|folder| folder.is_dir() && folder.uid() == rustix::process::geteuid().as_raw());
    if !ours || process_exists(pid) {
        return false;
    }
    match UnixStream::connect(folder.join("s")) {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let modified = fs::metadata(folder).and_then(|folder| folder.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > STALE_SOCKET_AGE))
        }
        Err(_) => false,
    }
}

fn process_exists(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process id that was in use a moment ago and is not any more.
    fn dead_pid() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        pid
    }

    #[tokio::test]
    async fn socket_and_directory_are_private_to_user() {
        let parent = tempfile::tempdir().unwrap();
        let (socket, _listener) = Socket::bind(&[parent.path().to_owned()], "unit").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(socket.folder.path()), 0o700);
        assert_eq!(mode(&socket.path), 0o600);
        let path = socket.path.clone();
        drop(socket);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn too_long_socket_path_falls_back_to_next_dir() {
        let (long, short) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deep = long.path().join("d".repeat(90));
        fs::create_dir(&deep).unwrap();
        let (socket, _listener) = Socket::bind(&[deep.clone(), short.path().to_owned()], "unit").unwrap();
        assert!(socket.path.starts_with(short.path()));
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
        assert!(matches!(Socket::bind(&[deep], "unit"), Err(SocketError::Path { .. })));
    }

    #[tokio::test]
    async fn only_socket_dirs_of_dead_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let dead = dead_pid();
        let left = folder(&format!("tfp-unit-{dead}-abc"));
        drop(std::os::unix::net::UnixListener::bind(left.join("s")).unwrap());
        let elsewhere = folder(&format!("tfp-unit-{dead}-def"));
        let _listening = std::os::unix::net::UnixListener::bind(elsewhere.join("s")).unwrap();
        let starting = folder(&format!("tfp-unit-{dead}-ghi"));
        let alive = folder(&format!("tfp-unit-{}-abc", std::process::id()));
        let other = folder(&format!("tfp-other-{dead}-abc"));

        let (socket, _listener) = Socket::bind(&[parent.path().to_owned()], "unit").unwrap();
        socket.remove_stale()();

        assert!(!left.exists());
        for kept in [&elsewhere, &starting, &alive, &other, &socket.path] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }
}
