//! Connects to an address, and notes whether the server speaks HTTP/2.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_util::io::InspectReader;

use crate::{daemon::serve::listen::Address, text::duration};

/// A local wrapper accepts a connection immediately.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP/2 server sends a frame of this type first. The type is the fourth byte.
const SETTINGS: u8 = 4;

pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Bytes for S {}

/// Whether the server speaks HTTP/2; unset before its first bytes.
pub(super) type IsHttp2 = Arc<OnceLock<bool>>;

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

pub(super) async fn connect(address: &Address) -> io::Result<Stream> {
    match address {
        Address::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
        Address::Tcp(host) => match timeout(CONNECT_TIMEOUT, TcpStream::connect(host)).await {
            Ok(connected) => connected.map(Stream::Tcp),
            Err(_) => Err(timed_out("no connection", CONNECT_TIMEOUT)),
        },
    }
}

pub(super) async fn open(address: &Address) -> io::Result<(Box<dyn Bytes>, IsHttp2)> {
    Ok(match connect(address).await? {
        Stream::Unix(stream) => inspected(stream),
        Stream::Tcp(stream) => inspected(stream),
    })
}

pub(super) fn timed_out(what: &str, limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {}", duration::show(limit)))
}

fn inspected(stream: impl Bytes + 'static) -> (Box<dyn Bytes>, IsHttp2) {
    let is_http2 = IsHttp2::default();
    let inspect = {
        let is_http2 = Arc::clone(&is_http2);
        move |bytes: &[u8]| {
            if !bytes.is_empty() {
                is_http2.get_or_init(|| bytes.get(3) == Some(&SETTINGS));
            }
        }
    };
    (Box::new(InspectReader::new(stream, inspect)), is_http2)
}
