//! A gRPC client for a running wrapper.

use std::time::Duration;

use grit_proto::{
    runner_wrapper::{CheckStatusRequest, process_wrapper_client::ProcessWrapperClient},
    wrapper_v1::{GetStatusRequest, wrapper_client::WrapperClient},
};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint, Uri},
};

use super::{
    connect::{self, Protocol, ReceivedPrefix},
    error::{CommandError, ConnectError},
};
use crate::daemon::listen::Address;

/// A wrapper responds immediately, except to requests that it forwards to its runner, which has 3 s.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A wait can last for days. HTTP/2 keepalive detects a wrapper that hangs and a host that is unreachable.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// One connection to a server that may be a wrapper.
#[derive(Debug)]
pub(super) struct Client {
    address: Address,
    channel: Channel,
    received: ReceivedPrefix,
}

impl Client {
    pub(super) async fn connect(address: &Address) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Connect { address: address.clone(), source };
        let (stream, received) = connect::open(address).await.map_err(failed)?;
        let mut stream = Some(TokioIo::new(stream));
        // Only once: a second connection could reach another wrapper.
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected);
            async move { Ok::<_, std::io::Error>(stream?) }
        });
        let endpoint = Endpoint::from_static("http://wrapper")
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_INTERVAL);
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|_| failed(ConnectError::Closed))?;
        Ok(Self { address: address.clone(), channel, received })
    }

    /// The response to one call, within [`RESPONSE_TIMEOUT`].
    pub(super) async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&mut WrapperClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, CommandError> {
        let mut wrapper = WrapperClient::new(self.channel.clone());
        match timeout(RESPONSE_TIMEOUT, call(&mut wrapper)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.explain(&status).await),
            Err(_) => Err(self.no_response(ConnectError::NoResponse(RESPONSE_TIMEOUT))),
        }
    }

    async fn explain(&self, status: &Status) -> CommandError {
        if !is_from_server(status) {
            return self.no_response(ConnectError::Closed);
        }
        match status.code() {
            Code::Unimplemented => self.identify_server().await,
            Code::PermissionDenied => CommandError::Denied(status.message().to_owned()),
            _ => CommandError::Refused(status.message().to_owned()),
        }
    }

    /// The error for a missing response; `no_data` if no data was received at all.
    fn no_response(&self, no_data: ConnectError) -> CommandError {
        let address = self.address.clone();
        match self.received.protocol() {
            Protocol::NoData => CommandError::Connect { address, source: no_data },
            Protocol::Other => CommandError::Connect { address, source: ConnectError::NotGrpc },
            Protocol::Http2 => CommandError::ConnectionLost { address },
        }
    }

    /// Finds out which server does not implement a method: an older wrapper, upstream's wrapper, or another server.
    async fn identify_server(&self) -> CommandError {
        let (address, channel) = (self.address.clone(), self.channel.clone());
        let probes = async {
            if let Ok(status) = WrapperClient::new(channel.clone()).get_status(GetStatusRequest {}).await {
                let version = status.into_inner().wrapper_version;
                return CommandError::TooOld { address, version };
            }
            match ProcessWrapperClient::new(channel).check_status(CheckStatusRequest {}).await {
                Ok(_) => CommandError::Upstream { address },
                Err(_) => CommandError::OtherServer { address },
            }
        };
        let late = || self.no_response(ConnectError::NoResponse(RESPONSE_TIMEOUT));
        timeout(RESPONSE_TIMEOUT, probes).await.unwrap_or_else(|_| late())
    }
}

/// Whether the server sent this status. A status that tonic created, because the connection failed, has a source.
pub(super) fn is_from_server(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
}
