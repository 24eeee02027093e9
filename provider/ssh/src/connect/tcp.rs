//! TCP connections: name resolution, parallel attempts, and socket options.

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};

use crate::{address::HostPort, error::Cause, limits::Deadline, session::nagle::QuickAck};

/// The delay before the next address is tried in parallel (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to the first address of the host that accepts the connection.
///
/// The name resolution and the connection have this limit each, until the deadline: a name service that does not respond says nothing about
/// the host.
pub(crate) async fn connect(
    address: &HostPort,
    limit: Duration,
    deadline: Deadline,
) -> Result<QuickAck, Cause> {
    let lookup = tokio::net::lookup_host((address.host(), address.port()));
    let found = resolved(lookup, deadline.cap(limit)).await.map_err(|cause| match address.zone() {
        // The name service reports an unknown name.
        Some(zone) => {
            let problem = format!("this machine has no network interface {zone:?}");
            Cause::Resolve(io::Error::new(io::ErrorKind::AddrNotAvailable, problem).into())
        }
        None => cause,
    });
    let found = found?.collect();
    connect_any(found, deadline.cap(limit)).await
}

async fn resolved<T>(lookup: impl Future<Output = io::Result<T>>, limit: Duration) -> Result<T, Cause> {
    let found = tokio::time::timeout(limit, lookup).await.unwrap_or_else(|_| {
        let problem = format!("the name service did not respond within {}", seconds(limit));
        Err(io::Error::new(io::ErrorKind::TimedOut, problem))
    });
    found.map_err(|error| Cause::Resolve(error.into()))
}

/// A duration with tenths of a second.
fn seconds(limit: Duration) -> String {
    format!("{}s", (limit.as_secs_f64() * 10.0).round() / 10.0)
}

/// Connects to the first of these addresses that accepts the connection. Otherwise returns the strongest evidence about the host.
async fn connect_any(mut waiting: VecDeque<SocketAddr>, limit: Duration) -> Result<QuickAck, Cause> {
    let until = Instant::now() + limit;
    let mut trying = FuturesUnordered::new();
    let mut failed: Option<Failed> = None;
    loop {
        if let Some(next) = waiting.pop_front() {
            trying.push(connect_to(next));
        }
        let wait = if waiting.is_empty() { until } else { until.min(Instant::now() + HEAD_START) };
        match timeout_at(wait, trying.next()).await {
            Ok(Some(Ok(stream))) => {
                stream.set_nodelay(true).map_err(|error| Cause::Network(error.into()))?;
                return Ok(QuickAck::new(stream));
            }
            Ok(Some(Err(error))) if failed.as_ref().is_none_or(|failed| error.shows() >= failed.shows()) => {
                failed = Some(error);
            }
            Ok(None) if waiting.is_empty() => {
                let no_address =
                    || io::Error::new(io::ErrorKind::NotFound, "the host name has no IP address");
                return Err(failed.unwrap_or_else(|| Failed::Answered(no_address())).into());
            }
            Err(_) if Instant::now() >= until => {
                let other = failed.filter(|failed| failed.shows() == Shown::Other);
                return Err(other.map_or(Cause::TimedOut { limit }, Cause::from));
            }
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
    }
}

/// Why an address did not accept a connection.
#[derive(Debug)]
enum Failed {
    /// `connect` has failed at once: no packet was sent. On loopback, a closed port also shows at once.
    NotSent(io::Error),
    /// The network has answered.
    Answered(io::Error),
}

async fn connect_to(address: SocketAddr) -> Result<TcpStream, Failed> {
    let stream = start_connecting(address)?;
    let connected = async {
        stream.writable().await?;
        stream.take_error()?.map_or(Ok(()), Err)
    };
    connected.await.map_err(Failed::Answered)?;
    Ok(stream)
}

/// tokio reports an error of the system call as one of the network, so this makes the call.
fn start_connecting(address: SocketAddr) -> Result<TcpStream, Failed> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP));
    let socket = socket.map_err(|error| Failed::NotSent(error.into()))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error @ rustix::io::Errno::CONNREFUSED) => return Err(Failed::Answered(error.into())),
        Err(error) => return Err(Failed::NotSent(error.into())),
    }
    TcpStream::from_std(std::net::TcpStream::from(socket)).map_err(Failed::NotSent)
}

/// Whether an error of a connection shows that no server responds at the address.
pub(super) fn shows_absence(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, TimedOut};
    matches!(kind, ConnectionRefused | HostUnreachable | TimedOut)
}

/// What the error of one address of a host shows. The highest value counts: a host that responds at one address is not absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    /// There is no route from here, for example no IPv6.
    Nothing,
    Absence,
    Other,
}

impl Failed {
    fn shows(&self) -> Shown {
        match self {
            Self::NotSent(error) | Self::Answered(error)
                if error.kind() == io::ErrorKind::NetworkUnreachable =>
            {
                Shown::Nothing
            }
            Self::Answered(error) if shows_absence(error.kind()) => Shown::Absence,
            Self::NotSent(_) | Self::Answered(_) => Shown::Other,
        }
    }
}

impl From<Failed> for Cause {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotSent(error) => Self::NotSent(error.into()),
            Failed::Answered(error) => Self::Network(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Reachability, Route,
        error::TransportError,
        limits::Limits,
        route::{ConnectionMethod, Phase},
    };

    #[tokio::test]
    async fn error_of_several_addresses_is_the_most_specific() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = listener.local_addr().unwrap();
        drop(listener);
        // TCP has no broadcast: ENETUNREACH. A link-local address needs a scope: EINVAL.
        let no_route: SocketAddr = "255.255.255.255:22".parse().unwrap();
        let invalid: SocketAddr = "[fe80::1]:22".parse().unwrap();
        for (other, is_absent) in [(no_route, true), (invalid, false)] {
            for addresses in [[refused, other], [other, refused]] {
                let cause = connect_any(addresses.into(), Duration::from_secs(60)).await.unwrap_err();
                let route = Route::example(ConnectionMethod::Direct);
                let reachability = TransportError::at(Phase::Tcp, route, cause).reachability();
                assert_eq!(reachability == Reachability::Absent, is_absent, "{other}: {reachability:?}");
            }
        }
    }

    /// No packet was sent. The interface may belong to another machine.
    #[tokio::test]
    async fn unknown_interface_is_not_an_absent_host() {
        for (address, text) in [
            ("fe80::1%no-such-if", "no network interface \"no-such-if\""),
            ("[fe80::1%99999]:22", ""),
            ("[fe80::1%]:22", ""),
        ] {
            let deadline = Limits::new(None, None, None).deadline(None);
            let cause =
                connect(&address.parse().unwrap(), Duration::from_secs(60), deadline).await.unwrap_err();
            assert!(cause.to_string().contains(text), "{cause}");
            let error = TransportError::at(Phase::Tcp, Route::example(ConnectionMethod::Direct), cause);
            assert_eq!(error.reachability(), Reachability::Unknown, "{address}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_name_service_is_not_an_absent_host() {
        let silent = std::future::pending::<io::Result<()>>();
        let cause = resolved(silent, Duration::from_secs(10)).await.unwrap_err();
        assert_eq!(cause.to_string(), "the name service did not respond within 10s");
        let error = TransportError::at(Phase::Tcp, Route::example(ConnectionMethod::Direct), cause);
        assert_eq!(error.reachability(), Reachability::Unknown);
    }
}
