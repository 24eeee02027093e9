//! Taking connections: each gets a place, or is closed.

use std::{io, os::fd::AsFd, sync::Arc, time::Duration};

use futures::stream::{self, Stream};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::sleep,
};
use tonic::transport::server::Connected;
use tracing::warn;

use super::{
    connection::Limited,
    connection_limits::{Guest, Places},
};
use crate::daemon::{
    access,
    counters::Counters,
    limits::{self, Quiet},
};

/// The pause after a failed accept: the usual cause is that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What can accept connections.
pub(super) trait Accept: Send + 'static {
    type Io: Connected + AsFd + Send + 'static;

    fn accept(&self) -> impl Future<Output = io::Result<(Self::Io, Guest)>> + Send;
}

impl Accept for UnixListener {
    type Io = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Guest)> {
        let (stream, _) = Self::accept(self).await?;
        let guest = match stream.peer_cred()?.uid() {
            uid if access::is_host(uid) => Guest::Host,
            uid => Guest::User(uid),
        };
        Ok((stream, guest))
    }
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Guest)> {
        let (stream, _) = Self::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok((stream, Guest::Unknown))
    }
}

/// Connections without end: an accept that fails is tried again, since a wrapper that stops listening has lost its purpose. A connection
/// for which there is no place is closed at once; those of the other listeners do not count.
pub(super) fn incoming<L: Accept>(
    listener: L,
    counters: Arc<Counters>,
) -> impl Stream<Item = io::Result<Limited<L::Io>>> {
    let door = Door {
        listener,
        counters,
        places: Places::default(),
        refusals: Quiet::after(1),
        failures: Quiet::after(1),
    };
    stream::unfold(door, |mut door| async move { Some((Ok(door.next().await), door)) })
}

#[derive(Debug)]
struct Door<L> {
    listener: L,
    counters: Arc<Counters>,
    places: Places,
    refusals: Quiet,
    failures: Quiet,
}

impl<L: Accept> Door<L> {
    async fn next(&mut self) -> Limited<L::Io> {
        loop {
            match self.listener.accept().await {
                Ok((stream, guest)) => {
                    if limits::has_one_of_the_last(&stream) {
                        self.refuse(guest, "file descriptors nearly exhausted (LimitNOFILE)");
                    } else if let Some(place) = self.places.take(guest) {
                        return Limited::new(stream, place);
                    } else {
                        self.refuse(guest, "connection limit of this user reached");
                    }
                }
                Err(error) => {
                    if self.failures.may_speak() {
                        warn!(%error, "cannot accept a gRPC connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn refuse(&mut self, guest: Guest, why: &str) {
        self.counters.turned_away();
        if self.refusals.may_speak() {
            warn!(?guest, why, "connection rejected");
        }
    }
}
