//! A gRPC client for a running wrapper.

use std::{error::Error, io, pin::pin, time::Duration};

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
use crate::daemon::serve::{limits::CALL_LIMIT, listen::Address};

/// A wrapper sends its first bytes immediately.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A wrapper that has sent something is carrying out this call or an earlier one. It ends a call first.
const CALL_TIMEOUT: Duration = CALL_LIMIT.saturating_add(RESPONSE_TIMEOUT);

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

    /// The response to one call, within [`CALL_TIMEOUT`], or within [`RESPONSE_TIMEOUT`] from a server that sends nothing.
    pub(super) async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&mut WrapperClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, CommandError> {
        let mut wrapper = WrapperClient::new(self.channel.clone());
        let mut call = pin!(call(&mut wrapper));
        let (mut limit, mut answer) = (RESPONSE_TIMEOUT, timeout(RESPONSE_TIMEOUT, &mut call).await);
        if answer.is_err() && self.is_http2.get() == Some(&true) {
            limit = CALL_TIMEOUT;
            answer = timeout(CALL_TIMEOUT.saturating_sub(RESPONSE_TIMEOUT), call).await;
        }
        match answer {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) if !is_from_server(&status) => Err(self.no_response(cause(&status))),
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                Err(CommandError::NotSupported { address: self.address.clone() })
            }
            Ok(Err(status)) => Err(CommandError::Refused(status)),
            Err(_) => Err(self.no_response(timed_out("no response", limit))),
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

#[cfg(test)]
mod tests {
    use grit_proto::wrapper_v1::StartRequest;
    use tokio::{
        io::AsyncWriteExt,
        net::UnixListener,
        time::{Instant, sleep},
    };

    use super::*;
    use crate::supervise::LONGEST_STEP;

    /// An empty frame of SETTINGS, with which a server begins.
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

    /// The clock is paused: it advances to the next timer when no other task can run.
    #[tokio::test(start_paused = true)]
    async fn call_outlasts_the_longest_step_of_a_wrapper() {
        for (first_bytes, is_connected) in [(SETTINGS, true), (&[][..], false)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("w.sock");
            let server = UnixListener::bind(&path).unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = server.accept().await.unwrap();
                stream.write_all(first_bytes).await.unwrap();
                sleep(Duration::from_secs(3600)).await;
                drop(stream);
            });
            let client = Client::connect(&Address::Unix(path)).await.unwrap();
            let begin = Instant::now();
            let error = client.ask(async |wrapper| wrapper.start(StartRequest {}).await).await.unwrap_err();
            let waited = begin.elapsed();
            if is_connected {
                assert!(matches!(error, CommandError::ConnectionLost { .. }), "{error}");
                assert!(waited > CALL_LIMIT && waited > LONGEST_STEP, "{waited:?}");
            } else {
                assert!(matches!(error, CommandError::Connect { .. }), "{error}");
                assert!(waited < 2 * RESPONSE_TIMEOUT, "{waited:?}");
            }
        }
    }
}
