//! The client that the layers above use: over SSH or, in a simulation, without a connection.

use std::{fmt, future::Future, sync::Arc};

use futures::future::{BoxFuture, Either};
use grit_proto::wrapper_v1 as v1;
use grit_ssh::{Connector, Target};
use tokio::time::Instant;

use super::{
    contacts::Contact,
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

/// A client of one wrapper. Its calls show which hosts this process reaches.
#[derive(Clone)]
pub(crate) struct Client {
    connection: Connection,
    contact: Contact,
}

#[derive(Clone)]
enum Connection {
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
    fn start(&self, deadline: Option<Instant>) -> BoxFuture<'_, Result<(), ClientError>>;
}

impl Clients {
    /// A client of this runner manager's wrapper. It opens no connection before its first call.
    pub(crate) fn client(&self, target: &Target, contact: Contact) -> Client {
        let connection = match self {
            Self::Ssh(connector) => Connection::Ssh(WrapperClient::new(connector.clone(), target.clone())),
            Self::Simulated(wrappers) => Connection::Simulated(wrappers(target), None),
        };
        Client { connection, contact }
    }
}

impl Client {
    /// The client, unless it is simulated.
    pub(crate) fn over_ssh(self) -> Option<WrapperClient> {
        match self.connection {
            Connection::Ssh(client) => Some(client),
            Connection::Simulated(..) => None,
        }
    }
}

impl Wrapper for Client {
    fn until(&self, deadline: Instant) -> Self {
        let connection = match &self.connection {
            Connection::Ssh(client) => Connection::Ssh(client.until(deadline)),
            Connection::Simulated(wrapper, _) => Connection::Simulated(Arc::clone(wrapper), Some(deadline)),
        };
        Self { connection, contact: self.contact.clone() }
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        self.contact.noted(match &self.connection {
            Connection::Ssh(client) => client.read_status().await,
            Connection::Simulated(wrapper, end) => wrapper.read_status(*end).await.map(Snapshot::from),
        })
    }

    fn changed(&self) -> impl Future<Output = ()> + Send {
        match &self.connection {
            Connection::Ssh(client) => Either::Left(client.changed()),
            Connection::Simulated(wrapper, _) => Either::Right(wrapper.changed()),
        }
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Snapshot, ClientError> {
        self.contact.noted(match &self.connection {
            Connection::Ssh(client) => client.drain(request).await,
            Connection::Simulated(wrapper, end) => {
                wrapper.drain(v1::DrainRequest::from(request), *end).await.map(Snapshot::from)
            }
        })
    }

    async fn running_jobs(&self) -> Result<Vec<u64>, ClientError> {
        self.contact.noted(match &self.connection {
            Connection::Ssh(client) => client.running_jobs().await,
            Connection::Simulated(wrapper, end) => wrapper.running_jobs(*end).await,
        })
    }

    async fn start(&self) -> Result<Start, ClientError> {
        self.contact.noted(match &self.connection {
            Connection::Ssh(client) => client.start().await,
            Connection::Simulated(wrapper, end) => wrapper.start(*end).await.map(|()| Start::Requested),
        })
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
