//! The Unix socket, in a directory with access only for this user.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use thiserror::Error;
use tokio::net::UnixListener;

/// Linux allows 107 bytes, other systems fewer.
const MAX_SOCKET_PATH: usize = 100;

/// The socket of this process. Dropping it removes the directory.
pub(super) struct Socket {
    path: PathBuf,
    _folder: TempDir,
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
        for parent in parents {
            let error = |source| SocketError::Folder { parent: parent.clone(), source };
            let folder = tempfile::Builder::new()
                .prefix(&format!("tfp-{name}-"))
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
            return Ok((Self { path, _folder: folder }, listener));
        }
        Err(SocketError::Path { parents: parents.to_vec() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[tokio::test]
    async fn socket_and_directory_are_private_to_user() {
        let parent = tempfile::tempdir().unwrap();
        let (socket, _listener) = Socket::bind(&[parent.path().to_owned()], "unit").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(socket.path.parent().unwrap()), 0o700);
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
}
