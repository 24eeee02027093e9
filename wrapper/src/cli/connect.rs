//! Connects to the address of a wrapper.

use std::{io, os::fd::OwnedFd, time::Duration};

use grit_proto::duration::human;
use tokio::{
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_util::either::Either;

use crate::daemon::serve::listen::Address;

/// A local wrapper accepts a connection immediately.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) type Stream = Either<UnixStream, TcpStream>;

pub(super) async fn connect(address: &Address) -> io::Result<Stream> {
    match address {
        Address::Unix(path) => UnixStream::connect(path).await.map(Either::Left),
        Address::Tcp(host) => match timeout(CONNECT_TIMEOUT, TcpStream::connect(host)).await {
            Ok(connected) => connected.map(Either::Right),
            Err(_) => Err(timed_out("no connection", CONNECT_TIMEOUT)),
        },
    }
}

/// The socket, without the runtime.
pub(super) fn into_std(stream: Stream) -> io::Result<OwnedFd> {
    match stream {
        Either::Left(stream) => stream.into_std().map(OwnedFd::from),
        Either::Right(stream) => stream.into_std().map(OwnedFd::from),
    }
}

pub(super) fn timed_out(what: &str, limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {}", human(limit)))
}
