//! HTTP client for the runner's HTTP server. It accepts responses of the runner only: see [`process::peer`].

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::{ControlFlow, Range},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1::{SendRequest, handshake},
    header::HOST,
};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::{
    net::{TcpSocket, TcpStream, lookup_host},
    time::timeout,
};

use super::runner_source::Endpoint;
use crate::supervise::{
    ChildInfo,
    process::{self, Peer},
};

/// Larger than a list of ten thousand jobs.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// The runner responds from memory, on this host.
const RESPONSE_LIMIT: Duration = Duration::from_secs(3);

/// The limits of a response that is read line by line. A runner with a thousand sections has 20 MB of metrics.
const MAX_STREAM: usize = 64 * 1024 * 1024;
const MAX_LINE: usize = 64 * 1024;
/// So much of a response is read only to keep its connection.
const MAX_SKIPPED: usize = 256 * 1024;
const STREAM_LIMIT: Duration = Duration::from_secs(30);

/// The client ports that root tries if the kernel has no other.
const ROOT_PORTS: Range<u16> = 900..1024;

/// Why there is no response.
#[derive(Debug, Error)]
pub(crate) enum GetError {
    #[error("cannot resolve the address: {0}")]
    Resolve(#[source] io::Error),
    /// GitLab Runner accepts it.
    #[error("the wrapper cannot resolve the port name {0:?}: use a number in listen_address")]
    NamedPort(String),
    #[error("no response within {RESPONSE_LIMIT:?}")]
    Timeout,
    #[error("connection failed")]
    Connect,
    #[error("the response is incomplete or too large")]
    Body,
    #[error("the response is larger than {} MiB", MAX_STREAM >> 20)]
    TooLarge,
    #[error("a line of the response is longer than {} KiB", MAX_LINE >> 10)]
    LongLine,
    #[error("the response was not complete within {STREAM_LIMIT:?}")]
    Slow,
    #[error("cannot determine which process responds at {address}: {error}")]
    Unchecked { address: SocketAddr, error: io::Error },
    #[error("{0}")]
    NotRunner(String),
}

/// The runner's HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(super) endpoint: Endpoint,
    pub(crate) runner: ChildInfo,
}

/// A client that keeps one connection open between requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Http(Arc<Mutex<Option<Connection>>>);

/// An open connection without a request. Its other end is the runner.
#[derive(Debug)]
struct Connection {
    server: Server,
    address: SocketAddr,
    requests: SendRequest<Empty<Bytes>>,
}

impl Http {
    pub(super) async fn get(&self, server: &Server, path: &str) -> Result<(StatusCode, String), GetError> {
        let answer = async {
            let (connection, answer) = self.send(server, path).await?;
            let status = answer.status();
            let body =
                Limited::new(answer.into_body(), MAX_BODY).collect().await.map_err(|_| GetError::Body)?;
            self.keep(connection);
            Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        };
        timeout(RESPONSE_LIMIT, answer).await.map_err(|_| GetError::Timeout)?
    }

    /// Passes each line of a response to `line`, so that its size does not matter for memory, and other tasks run in between. After `Break`, the
    /// rest is skipped.
    pub(super) async fn lines(
        &self,
        server: &Server,
        path: &str,
        mut line: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<StatusCode, GetError> {
        let answer = timeout(RESPONSE_LIMIT, self.send(server, path)).await;
        let (connection, mut answer) = answer.map_err(|_| GetError::Timeout)??;
        let status = answer.status();
        let read = async {
            let (mut lines, mut size) = (Lines::default(), 0);
            let mut skipped = None;
            loop {
                let frame = timeout(RESPONSE_LIMIT, answer.body_mut().frame()).await;
                let Some(frame) = frame.map_err(|_| GetError::Timeout)? else { break };
                let Ok(data) = frame.map_err(|_| GetError::Body)?.into_data() else { continue };
                size += data.len();
                if size > MAX_STREAM {
                    return Err(GetError::TooLarge);
                }
                match &mut skipped {
                    // Another connection costs less than the rest.
                    Some(MAX_SKIPPED..) => return Ok(status),
                    Some(skipped) => *skipped += data.len(),
                    None if lines.add(&data, &mut line)?.is_break() => skipped = Some(0),
                    None => {}
                }
            }
            if skipped.is_none() {
                let _end = lines.finish(&mut line);
            }
            self.keep(connection);
            Ok(status)
        };
        timeout(STREAM_LIMIT, read).await.map_err(|_| GetError::Slow)?
    }

    /// Sends the request over the open connection, or over a new one. If the future or the response is dropped, the connection is closed.
    async fn send(&self, server: &Server, path: &str) -> Result<(Connection, Response<Incoming>), GetError> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut connection) = idle.filter(|idle| idle.server == *server)
            && connection.requests.ready().await.is_ok()
            // The runner may close it in this moment.
            && let Ok(answer) = connection.requests.send_request(request(connection.address, path)?).await
        {
            return Ok((connection, answer));
        }
        let mut failure = GetError::Connect;
        for address in addresses(&server.endpoint).await? {
            match open(server, address, path).await {
                Ok(opened) => return Ok(opened),
                // The address that another process uses is the cause.
                Err(_) if matches!(failure, GetError::NotRunner(_)) => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Keeps a connection whose response is complete.
    fn keep(&self, connection: Connection) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }
}

/// The addresses in the order in which they are tried: IPv4 before IPv6, as the runner chooses the address of a name to listen on.
async fn addresses(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, GetError> {
    let mut found = Vec::new();
    for address in &endpoint.0 {
        if let Some((_, port)) = address.rsplit_once(':')
            && port.parse::<u16>().is_err()
        {
            return Err(GetError::NamedPort(port.to_owned()));
        }
        found.extend(lookup_host(address).await.map_err(GetError::Resolve)?);
    }
    found.sort_by_key(SocketAddr::is_ipv6);
    Ok(found)
}

fn request(address: SocketAddr, path: &str) -> Result<Request<Empty<Bytes>>, GetError> {
    let request = Request::get(path).header(HOST, address.to_string());
    request.body(Empty::new()).map_err(|_| GetError::Connect)
}

/// Sends the request over a new connection. The other end is the runner, as far as the kernel shows it.
async fn open(
    server: &Server,
    address: SocketAddr,
    path: &str,
) -> Result<(Connection, Response<Incoming>), GetError> {
    let stream = connect(address).await.map_err(|_| GetError::Connect)?;
    let (local, remote) = stream
        .local_addr()
        .and_then(|local| Ok((local, stream.peer_addr()?)))
        .map_err(|_| GetError::Connect)?;
    let (mut requests, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| GetError::Connect)?;
    // It ends with its last request, or when `requests` is dropped. Its error is that of the request.
    tokio::spawn(connection);
    let answer = requests.send_request(request(address, path)?).await.map_err(|_| GetError::Connect)?;
    // After the response, because a socket belongs to no process before it is accepted.
    let runner = server.runner.pid();
    let peer = process::peer(runner, local, remote).await;
    let (ip, port) = (remote.ip(), remote.port());
    match peer.map_err(|error| GetError::Unchecked { address, error })? {
        Peer::Runner | Peer::Unreadable => {
            Ok((Connection { server: server.clone(), address, requests }, answer))
        }
        Peer::Other(other) => Err(GetError::NotRunner(format!(
            "port {port} of {ip} is used by {other}, not by the runner (process {runner}): stop the other process, or \
             set another listen_address. If the other process is the runner, the command must start it with `exec`"
        ))),
        Peer::Closed => Err(GetError::NotRunner(format!(
            "the process that uses port {port} of {ip} closed the connection, so the wrapper cannot determine whether this process is the \
             runner (process {runner}). To find the process: `ss --listening --tcp --processes`"
        ))),
    }
}

/// Any user of the host can use up the client ports for this address. Ports below 1024 are for root.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    match TcpStream::connect(address).await {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            for port in ROOT_PORTS.rev() {
                if let Ok(stream) = connect_from(port, address).await {
                    return Ok(stream);
                }
            }
            Err(error)
        }
        connected => connected,
    }
}

async fn connect_from(port: u16, address: SocketAddr) -> io::Result<TcpStream> {
    let (socket, any): (_, IpAddr) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, Ipv6Addr::UNSPECIFIED.into()),
    };
    // An earlier connection of this port may be in the state TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(any, port))?;
    socket.connect(address).await
}

/// Splits a stream of bytes into lines.
#[derive(Default)]
struct Lines {
    /// The beginning of the current line.
    partial: Vec<u8>,
}

impl Lines {
    fn add(
        &mut self,
        mut data: &[u8],
        line: &mut impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GetError> {
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            let next = if self.partial.is_empty() {
                line(&String::from_utf8_lossy(&data[..end]))
            } else {
                self.partial.extend_from_slice(&data[..end]);
                self.finish(line)
            };
            if next.is_break() {
                return Ok(next);
            }
            data = &data[end + 1..];
        }
        if self.partial.len() + data.len() > MAX_LINE {
            return Err(GetError::LongLine);
        }
        self.partial.extend_from_slice(data);
        Ok(ControlFlow::Continue(()))
    }

    /// Passes the current line, even if it has no line break.
    fn finish(&mut self, line: &mut impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        let partial = std::mem::take(&mut self.partial);
        if partial.is_empty() { ControlFlow::Continue(()) } else { line(&String::from_utf8_lossy(&partial)) }
    }
}

#[cfg(test)]
mod tests;
