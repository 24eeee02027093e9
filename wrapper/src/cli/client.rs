//! A gRPC client for a running wrapper.

use std::{error::Error, io, time::Duration};

use grit_proto::wrapper_v1::wrapper_client::WrapperClient;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint, Uri},
};

use super::{
    connect::{connect, timed_out},
    error::CommandError,
};
use crate::daemon::serve::{limits::CALL_LIMIT, listen::Address};

/// A wrapper ends a call first.
const CALL_TIMEOUT: Duration = CALL_LIMIT.saturating_add(Duration::from_secs(10));

/// A wait can last for days. HTTP/2 keepalive detects a wrapper that hangs and a host that is unreachable.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// One connection to a wrapper.
#[derive(Debug)]
pub(super) struct Client {
    address: Address,
    channel: Channel,
}

impl Client {
    pub(super) async fn connect(address: &Address) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Connect { address: address.clone(), source };
        let mut stream = Some(TokioIo::new(connect(address).await.map_err(failed)?));
        // Only once: a second connection could reach another wrapper.
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take().ok_or(io::ErrorKind::NotConnected);
            async move { Ok::<_, io::Error>(stream?) }
        });
        let endpoint = Endpoint::from_static("http://wrapper")
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_INTERVAL);
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| failed(cause(&error)))?;
        Ok(Self { address: address.clone(), channel })
    }

    /// The response to one call, within [`CALL_TIMEOUT`].
    pub(super) async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&mut WrapperClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, CommandError> {
        let mut wrapper = WrapperClient::new(self.channel.clone());
        let lost = |source| CommandError::ConnectionLost { address: self.address.clone(), source };
        match timeout(CALL_TIMEOUT, call(&mut wrapper)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) if !is_from_server(&status) => Err(lost(cause(&status))),
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                Err(CommandError::NotSupported { address: self.address.clone() })
            }
            Ok(Err(status)) => Err(CommandError::Refused(status)),
            Err(_) => Err(lost(timed_out("no response", CALL_TIMEOUT))),
        }
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
