//! Connects to an address, and records the first bytes received: they show whether the server speaks HTTP/2.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::{fs::Access as May, process::geteuid};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_util::io::InspectReader;

use super::error::ConnectError;
use crate::daemon::{access, listen::Address};

/// A local wrapper accepts a connection immediately.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP/2 server sends a SETTINGS frame first: a header of 9 bytes with the type in the fourth and stream 0 in the last four.
const FRAME_HEADER: usize = 9;
const SETTINGS: u8 = 4;

pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Bytes for S {}

/// The first bytes received.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedPrefix(Arc<Mutex<Vec<u8>>>);

/// The protocol of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    NoData,
    Http2,
    Other,
}

/// A connection to a wrapper.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// The socket, without the runtime.
    pub(super) fn into_std(self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(stream) => stream.into_std().map(OwnedFd::from),
            Self::Tcp(stream) => stream.into_std().map(OwnedFd::from),
        }
    }
}

pub(super) async fn connect(address: &Address) -> Result<Stream, ConnectError> {
    match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| explain_unix(path, error))?;
            Ok(Stream::Unix(stream))
        }
        Address::Tcp(host) => match timeout(CONNECT_TIMEOUT, TcpStream::connect(host)).await {
            Ok(Ok(stream)) => Ok(Stream::Tcp(stream)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(ConnectError::NotListening)
            }
            Ok(Err(error)) => Err(ConnectError::Io(error)),
            Err(_) => Err(ConnectError::Unreachable(CONNECT_TIMEOUT)),
        },
    }
}

pub(super) async fn open(address: &Address) -> Result<(Box<dyn Bytes>, ReceivedPrefix), ConnectError> {
    Ok(match connect(address).await? {
        Stream::Unix(stream) => recorded(stream),
        Stream::Tcp(stream) => recorded(stream),
    })
}

/// A stream that records the first bytes received.
fn recorded(stream: impl Bytes + 'static) -> (Box<dyn Bytes>, ReceivedPrefix) {
    let received = ReceivedPrefix::default();
    let recorder = received.clone();
    (Box::new(InspectReader::new(stream, move |bytes: &[u8]| recorder.record(bytes))), received)
}

impl ReceivedPrefix {
    pub(super) fn protocol(&self) -> Protocol {
        match self.lock().as_slice() {
            [] => Protocol::NoData,
            [_, _, _, SETTINGS, _, 0, 0, 0, 0] => Protocol::Http2,
            _ => Protocol::Other,
        }
    }

    fn record(&self, bytes: &[u8]) {
        let mut received = self.lock();
        let missing = FRAME_HEADER - received.len();
        received.extend(bytes.iter().take(missing));
    }

    /// A panic cannot leave the data in an inconsistent state.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cause of an error, derived from the file at `path`.
fn explain_unix(path: &Path, error: io::Error) -> ConnectError {
    let kind = fs::metadata(path).map(|found| found.file_type());
    match error.kind() {
        io::ErrorKind::NotFound => ConnectError::Missing,
        io::ErrorKind::InvalidInput => ConnectError::TooLong,
        io::ErrorKind::WouldBlock => ConnectError::BacklogFull,
        // A component of the path is a file.
        io::ErrorKind::NotADirectory => ConnectError::Missing,
        io::ErrorKind::PermissionDenied => {
            ConnectError::Denied { user: access::user_name(geteuid().as_raw()), barrier: barrier(path) }
        }
        io::ErrorKind::ConnectionRefused => match kind {
            Ok(kind) if kind.is_socket() => ConnectError::Stale,
            Ok(kind) if kind.is_dir() => ConnectError::NotASocket("a directory"),
            Ok(kind) if kind.is_file() => ConnectError::NotASocket("a file"),
            Ok(_) => ConnectError::NotASocket("another kind of file"),
            Err(_) => ConnectError::Missing,
        },
        _ => ConnectError::Io(error),
    }
}

/// The first directory that denies access to this user, or the socket itself.
fn barrier(path: &Path) -> String {
    let mut folders: Vec<_> = path.ancestors().skip(1).collect();
    folders.reverse();
    let closed = folders.into_iter().find(|folder| {
        fs::symlink_metadata(folder).is_ok() && rustix::fs::access(*folder, May::EXEC_OK).is_err()
    });
    let (what, barrier) = match closed {
        Some(folder) => ("directory ", folder),
        None => ("", path),
    };
    match fs::metadata(barrier) {
        Ok(found) => format!(
            "{what}{} has owner {}, group {} and mode {:04o}",
            barrier.display(),
            access::user_name(found.uid()),
            access::group_name(found.gid()),
            found.mode() & 0o7777
        ),
        Err(_) => format!("cannot read the owner and mode of {what}{}", barrier.display()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn first_bytes_identify_protocol() {
        for (words, protocol) in [
            (&b""[..], Protocol::NoData),
            (&[0, 0, 24, 4, 0, 0, 0, 0, 0, 1, 2, 3], Protocol::Http2),
            (&[0, 0, 24, 7, 0, 0, 0, 0, 0], Protocol::Other),
            (b"HTTP/1.1 400 Bad Request\r\n", Protocol::Other),
            (b"SSH", Protocol::Other),
        ] {
            let stream = tokio::io::join(io::Cursor::new(words.to_vec()), tokio::io::sink());
            let (mut stream, received) = recorded(stream);
            let mut all = Vec::new();
            // Byte by byte, as from a slow peer.
            while let Ok(byte) = stream.read_u8().await {
                all.push(byte);
            }
            assert_eq!((all.as_slice(), received.protocol()), (words, protocol));
        }
    }
}
