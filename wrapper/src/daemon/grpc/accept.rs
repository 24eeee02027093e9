//! Accepting gRPC connections, within the limits of their listener.

use std::{io, sync::Arc, time::Duration};

use futures::stream::{self, Stream};
use hyper::http::Extensions;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::sleep,
};
use tokio_util::either::Either;
use tonic::transport::server::Connected;
use tracing::warn;

use super::{
    connection::Connection,
    connection_limits::{Connections, Peer, Slot},
};
use crate::daemon::{
    access,
    counters::Counters,
    limits::{LogRateLimiter, uses_reserved_fd},
};
use crate::supervise::log_key as key;

/// The pause after a failed accept: the usual cause is that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Socket = Either<UnixStream, TcpStream>;

/// The connections of one listener, without end. A failed accept is retried. A connection beyond the limits is closed at once.
pub(super) fn incoming(
    listener: Either<UnixListener, TcpListener>,
    counters: Arc<Counters>,
) -> impl Stream<Item = io::Result<Connection<Socket>>> {
    let acceptor = Acceptor {
        listener,
        counters,
        open: Connections::default(),
        rejections: LogRateLimiter::per_minute(1),
        failures: LogRateLimiter::per_minute(1),
    };
    stream::unfold(acceptor, |mut acceptor| async move { Some((Ok(acceptor.next().await), acceptor)) })
}

#[derive(Debug)]
struct Acceptor {
    listener: Either<UnixListener, TcpListener>,
    counters: Arc<Counters>,
    open: Connections,
    rejections: LogRateLimiter,
    failures: LogRateLimiter,
}

impl Acceptor {
    async fn next(&mut self) -> Connection<Socket> {
        loop {
            match self.accept().await {
                Ok((socket, peer, info)) => match self.admit(&socket, peer) {
                    Ok(slot) => return Connection::new(socket, slot, info),
                    Err(why) => {
                        self.counters.connection_rejected();
                        if self.rejections.allow_log() {
                            warn!({ key::PEER } = ?peer, { key::REASON } = why, "connection rejected");
                        }
                    }
                },
                Err(error) => {
                    if self.failures.allow_log() {
                        warn!({ key::ERROR } = %error, "cannot accept a gRPC connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(Socket, Peer, Extensions)> {
        let mut info = Extensions::new();
        match &self.listener {
            Either::Left(listener) => {
                let (socket, _) = listener.accept().await?;
                info.insert(socket.connect_info());
                let uid = socket.peer_cred()?.uid();
                let peer = if access::is_privileged(uid) { Peer::Privileged } else { Peer::User(uid) };
                Ok((Either::Left(socket), peer, info))
            }
            Either::Right(listener) => {
                let (socket, _) = listener.accept().await?;
                info.insert(socket.connect_info());
                socket.set_nodelay(true)?;
                Ok((Either::Right(socket), Peer::Unknown, info))
            }
        }
    }

    fn admit(&self, socket: &Socket, peer: Peer) -> Result<Slot, &'static str> {
        let uses_reserved_fd = match socket {
            Either::Left(socket) => uses_reserved_fd(socket),
            Either::Right(socket) => uses_reserved_fd(socket),
        };
        if uses_reserved_fd {
            return Err("file descriptors nearly exhausted (LimitNOFILE)");
        }
        self.open.open(peer).ok_or("connection limit of this user reached")
    }
}
