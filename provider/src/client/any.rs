//! The clients that the layers above use.

use std::{fmt, future::Future, sync::Arc};

use grit_ssh::Target;
use tokio::time::Instant;

use super::{
    connect::Connect,
    contacts::Contact,
    error::ClientError,
    request::{DrainRequest, Start},
    snapshot::Snapshot,
    wrapper::Wrapper,
    wrapper_client::WrapperClient,
};

/// Makes the clients of all runner managers.
#[derive(Clone)]
pub struct Clients(Arc<dyn Connect>);

/// A client of one wrapper. Its calls show which hosts this process reaches.
#[derive(Clone)]
pub(crate) struct Client {
    wrapper: WrapperClient,
    contact: Contact,
}

impl Clients {
    pub fn new(connect: impl Connect + 'static) -> Self {
        Self(Arc::new(connect))
    }

    /// A client of this runner manager's wrapper. It opens no connection before its first call.
    pub(crate) fn client(&self, target: &Target, contact: Contact) -> Client {
        Client { wrapper: WrapperClient::new(Arc::clone(&self.0), target.clone()), contact }
    }
}

impl Client {
    pub(crate) fn into_wrapper_client(self) -> WrapperClient {
        self.wrapper
    }
}

impl Wrapper for Client {
    fn until(&self, deadline: Instant) -> Self {
        Self { wrapper: self.wrapper.until(deadline), contact: self.contact.clone() }
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        let result = self.wrapper.read_status().await;
        self.wrapper.called(result.as_ref().map(Some));
        self.contact.noted(result)
    }

    fn changed(&self) -> impl Future<Output = ()> + Send {
        self.wrapper.changed()
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Snapshot, ClientError> {
        let result = self.wrapper.drain(request).await;
        self.wrapper.called(result.as_ref().map(Some));
        self.contact.noted(result)
    }

    async fn running_jobs(&self) -> Result<Vec<u64>, ClientError> {
        let result = self.wrapper.running_jobs().await;
        self.wrapper.called(result.as_ref().map(|_| None));
        self.contact.noted(result)
    }

    async fn start(&self) -> Result<Start, ClientError> {
        let result = self.wrapper.start().await;
        self.wrapper.called(result.as_ref().map(|_| None));
        self.contact.noted(result)
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}
