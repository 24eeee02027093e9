//! A gRPC client for a running wrapper.

use std::{error::Error, io, time::Duration};

use grit_proto::wrapper_v1::wrapper_client::WrapperClient;
use hyper_util::rt::TokioIo;
use tokio::time::{sleep, timeout};
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint, Uri},
};

use super::{
    connect::{self, IsHttp2, timed_out},
    error::CommandError,
};
use crate::daemon::serve::listen::Address;

/// A wrapper responds immediately, except to requests that it forwards to its runner, which has 3 s.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// An upgrade in place closes the connections that the new program has not accepted yet.
const ATTEMPTS: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// A wait can last for days. HTTP/2 keepalive detects a wrapper that hangs and a host that is unreachable.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// One connection to a server that may be a wrapper.
#[derive(Debug)]
pub(super) struct Client {
    address: Address,
    channel: Channel,
    is_http2: IsHttp2,
}

impl Client {
    pub(super) async fn connect(address: &Address) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Connect { address: address.clone(), source };
        let (stream, is_http2) = connect::open(address).await.map_err(failed)?;
        let mut stream = Some(TokioIo::new(stream));
        // Only once: a second connection could reach another wrapper.
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take().ok_or(io::ErrorKind::NotConnected);
            async move { Ok::<_, io::Error>(stream?) }
        });
        let endpoint = Endpoint::from_static("http://wrapper")
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_INTERVAL);
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|_| failed(not_grpc(&is_http2)))?;
        Ok(Self { address: address.clone(), channel, is_http2 })
    }

    /// Connects, and performs an operation. If the server closed the connection before it sent anything, the operation is performed again: no
    /// request was received.
    pub(super) async fn with<T>(
        address: &Address,
        operation: impl AsyncFn(Self) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let attempt = async || operation(Self::connect(address).await?).await;
        for _ in 1..ATTEMPTS {
            match attempt().await {
                Err(error) if error.is_unanswered() => sleep(RETRY_DELAY).await,
                result => return result,
            }
        }
        attempt().await
    }

    /// The response to one call, within [`RESPONSE_TIMEOUT`].
    pub(super) async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&mut WrapperClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, CommandError> {
        let mut wrapper = WrapperClient::new(self.channel.clone());
        match timeout(RESPONSE_TIMEOUT, call(&mut wrapper)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) if !is_from_server(&status) => Err(self.no_response(cause(&status))),
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                Err(CommandError::NotSupported { address: self.address.clone() })
            }
            Ok(Err(status)) => Err(CommandError::Refused(status)),
            Err(_) => Err(self.no_response(timed_out("no response", RESPONSE_TIMEOUT))),
        }
    }

    /// A server that does not speak HTTP/2 has not received the request.
    fn no_response(&self, source: io::Error) -> CommandError {
        let address = self.address.clone();
        if self.is_http2.get() == Some(&true) {
            return CommandError::ConnectionLost { address, source };
        }
        let source = match source.kind() {
            io::ErrorKind::TimedOut => source,
            _ => not_grpc(&self.is_http2),
        };
        CommandError::Connect { address, source }
    }
}

/// The error of a server that has not sent HTTP/2, or nothing at all.
fn not_grpc(is_http2: &IsHttp2) -> io::Error {
    match is_http2.get() {
        Some(_) => io::Error::new(io::ErrorKind::InvalidData, "the server does not speak gRPC"),
        None => io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the server closed the connection before it sent anything",
        ),
    }
}

/// Whether the server sent this status. A status that tonic created, because the connection failed, has a source.
pub(super) fn is_from_server(status: &Status) -> bool {
    status.source().is_none()
}

/// The first cause of an error, which is that of the system or of the protocol.
fn cause(mut error: &(dyn Error + 'static)) -> io::Error {
    while let Some(source) = error.source() {
        error = source;
    }
    let kind = error.downcast_ref::<io::Error>().map_or(io::ErrorKind::Other, io::Error::kind);
    io::Error::new(kind, error.to_string())
}
