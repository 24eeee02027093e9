//! Asking a running wrapper.

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
    connect::{self, Language, Said},
    error::{CommandError, ConnectError},
};
use crate::daemon::listen::Address;

/// A wrapper answers at once, but for questions that it has to ask its runner first, for which it gives that 3 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A wait lasts for days. That its wrapper hangs, or its host is gone, is noticed by a sign of life that does not come.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// One connection to a wrapper, or to what is taken for one.
#[derive(Debug)]
pub(super) struct Client {
    address: Address,
    channel: Channel,
    said: Said,
}

impl Client {
    pub(super) async fn connect(address: &Address) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Connect { address: address.clone(), source };
        let (stream, said) = connect::open(address).await.map_err(failed)?;
        let mut stream = Some(TokioIo::new(stream));
        // Once: what is reached through a second connection could be another wrapper.
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected);
            async move { Ok::<_, std::io::Error>(stream?) }
        });
        let endpoint = Endpoint::from_static("http://wrapper")
            .http2_keep_alive_interval(SIGN_OF_LIFE)
            .keep_alive_timeout(SIGN_OF_LIFE);
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|_| failed(ConnectError::Closed))?;
        Ok(Self { address: address.clone(), channel, said })
    }

    /// The answer to one call, within [`ANSWER_LIMIT`].
    pub(super) async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&mut WrapperClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, CommandError> {
        let mut wrapper = WrapperClient::new(self.channel.clone());
        match timeout(ANSWER_LIMIT, call(&mut wrapper)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.explain(&status).await),
            Err(_) => Err(self.no_answer(ConnectError::Silent(ANSWER_LIMIT))),
        }
    }

    async fn explain(&self, status: &Status) -> CommandError {
        if !is_of_the_wrapper(status) {
            return self.no_answer(ConnectError::Closed);
        }
        match status.code() {
            Code::Unimplemented => self.who_is_there().await,
            Code::PermissionDenied => CommandError::Denied(status.message().to_owned()),
            _ => CommandError::Refused(status.message().to_owned()),
        }
    }

    /// What it means that no answer came, in the way `nothing_said` says when nothing came at all.
    fn no_answer(&self, nothing_said: ConnectError) -> CommandError {
        let address = self.address.clone();
        match self.said.language() {
            Language::Nothing => CommandError::Connect { address, source: nothing_said },
            Language::Other => CommandError::Connect { address, source: ConnectError::NotGrpc },
            Language::Http2 => CommandError::Broken { address },
        }
    }

    /// Who does not know a call of ours: an older wrapper, upstream's, or none.
    async fn who_is_there(&self) -> CommandError {
        let (address, channel) = (self.address.clone(), self.channel.clone());
        let looks = async {
            if let Ok(status) = WrapperClient::new(channel.clone()).get_status(GetStatusRequest {}).await {
                let version = status.into_inner().wrapper_version;
                return CommandError::TooOld { address, version };
            }
            match ProcessWrapperClient::new(channel).check_status(CheckStatusRequest {}).await {
                Ok(_) => CommandError::Upstream { address },
                Err(_) => CommandError::NoWrapper { address },
            }
        };
        let late = || self.no_answer(ConnectError::Silent(ANSWER_LIMIT));
        timeout(ANSWER_LIMIT, looks).await.unwrap_or_else(|_| late())
    }
}

/// Whether the other end has sent this status. One that was made here, because the connection failed, has a cause.
pub(super) fn is_of_the_wrapper(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
}
