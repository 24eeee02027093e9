//! The connection to a running wrapper.

use std::time::Duration;

use grit_proto::wrapper_v1::wrapper_client::WrapperClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint, Uri},
};

use super::CommandError;
use crate::listen::Address;

pub(super) type Client = WrapperClient<Channel>;

/// A local wrapper answers at once, or not at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn connect(address: &Address) -> Result<Client, CommandError> {
    let channel = match address {
        Address::Unix(path) => {
            let path = path.clone();
            let connect = tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            });
            let endpoint = Endpoint::from_static("http://wrapper").connect_timeout(CONNECT_LIMIT);
            endpoint.connect_with_connector(connect).await
        }
        Address::Tcp(host) => match Endpoint::from_shared(format!("http://{host}")) {
            Ok(endpoint) => endpoint.connect_timeout(CONNECT_LIMIT).connect().await,
            Err(error) => Err(error),
        },
    };
    let channel = channel.map_err(|source| CommandError::Connect { address: address.clone(), source })?;
    Ok(WrapperClient::new(channel))
}

/// What a failed call means to an operator.
pub(super) fn explain(address: &Address, status: &Status) -> CommandError {
    match status.code() {
        Code::Unimplemented => CommandError::NotOurs { address: address.clone() },
        _ => CommandError::Refused(status.message().to_owned()),
    }
}
