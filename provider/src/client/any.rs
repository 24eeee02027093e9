//! The client that the layers above use: over SSH or, in a simulation, without a connection.

use std::{fmt, future::Future, sync::Arc};

use futures::future::{BoxFuture, Either};
use grit_proto::wrapper_v1 as v1;
use grit_ssh::{Connector, Target};
use tokio::time::Instant;

use super::{
    error::ClientError,
    request::{DrainRequest, Start},
    snapshot::Snapshot,
    wrapper::Wrapper,
    wrapper_client::WrapperClient,
};

/// Finds the wrapper of a simulation.
type FindWrapper = dyn Fn(&Target) -> Arc<dyn SimulatedWrapper> + Send + Sync;

/// Makes the clients of all runner managers.
#[derive(Clone)]
pub enum Clients {
    Ssh(Connector),
    Simulated(Arc<FindWrapper>),
}

/// A client of one wrapper.
#[derive(Clone)]
pub(crate) enum Client {
    Ssh(WrapperClient),
    Simulated(Arc<dyn SimulatedWrapper>, Option<Instant>),
}

/// A wrapper of a simulation: the messages of `grit.wrapper.v1`, without a connection. A call ends at its deadline.
pub trait SimulatedWrapper: Send + Sync {
    fn read_status(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<v1::Status, ClientError>>;
    fn changed(&self) -> BoxFuture<'_, ()>;
    fn drain(
        &self,
        request: v1::DrainRequest,
        deadline: Option<Instant>,
    ) -> BoxFuture<'_, Result<v1::Status, ClientError>>;
    fn running_jobs(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<Vec<u64>, ClientError>>;
    fn cancel(&self, id: String, deadline: Option<Instant>)
    -> BoxFuture<'_, Result<v1::Status, ClientError>>;
    fn start(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<(), ClientError>>;
}

impl Clients {
    /// A client of this runner manager's wrapper. It opens no connection before its first call.
    pub(crate) fn client(&self, target: &Target) -> Client {
        match self {
            Self::Ssh(connector) => Client::Ssh(WrapperClient::new(connector.clone(), target.clone())),
            Self::Simulated(wrappers) => Client::Simulated(wrappers(target), None),
        }
    }
}

impl Client {
    /// The client, unless it is simulated.
    pub(crate) fn over_ssh(self) -> Option<WrapperClient> {
        match self {
            Self::Ssh(client) => Some(client),
            Self::Simulated(..) => None,
        }
    }
}

impl Wrapper for Client {
    fn until(&self, deadline: Instant) -> Self {
        match self {
            Self::Ssh(client) => Self::Ssh(client.until(deadline)),
            Self::Simulated(wrapper, _) => Self::Simulated(Arc::clone(wrapper), Some(deadline)),
        }
    }

    fn read_status(&self) -> impl Future<Output = Result<Snapshot, ClientError>> + Send {
        match self {
            Self::Ssh(client) => Either::Left(client.read_status()),
            Self::Simulated(wrapper, end) => {
                Either::Right(async { Ok(wrapper.read_status(*end).await?.into()) })
            }
        }
    }

    fn changed(&self) -> impl Future<Output = ()> + Send {
        match self {
            Self::Ssh(client) => Either::Left(client.changed()),
            Self::Simulated(wrapper, _) => Either::Right(wrapper.changed()),
        }
    }

    fn drain(&self, request: &DrainRequest) -> impl Future<Output = Result<Snapshot, ClientError>> + Send {
        match self {
            Self::Ssh(client) => Either::Left(client.drain(request)),
            Self::Simulated(wrapper, end) => {
                let request = v1::DrainRequest::from(request);
                Either::Right(async move { Ok(wrapper.drain(request, *end).await?.into()) })
            }
        }
    }

    fn running_jobs(&self) -> impl Future<Output = Result<Vec<u64>, ClientError>> + Send {
        match self {
            Self::Ssh(client) => Either::Left(client.running_jobs()),
            Self::Simulated(wrapper, end) => Either::Right(wrapper.running_jobs(*end)),
        }
    }

    fn cancel(&self, id: &str) -> impl Future<Output = Result<Option<Snapshot>, ClientError>> + Send {
        match self {
            Self::Ssh(client) => Either::Left(client.cancel(id)),
            Self::Simulated(wrapper, end) => {
                let id = id.to_owned();
                Either::Right(async move { Ok(Some(wrapper.cancel(id, *end).await?.into())) })
            }
        }
    }

    fn start(&self) -> impl Future<Output = Result<Start, ClientError>> + Send {
        match self {
            Self::Ssh(client) => Either::Left(client.start()),
            Self::Simulated(wrapper, end) => {
                Either::Right(async { wrapper.start(*end).await.map(|()| Start::Requested) })
            }
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(connector) => f.debug_tuple("Ssh").field(connector).finish(),
            Self::Simulated(_) => f.write_str("Simulated"),
        }
    }
}
