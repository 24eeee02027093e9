//! Unix sockets whose file is gone, and cannot be created again.

use tokio::sync::watch;

use super::{Address, ListenError};
use crate::runner::Health;

/// Reports them as reasons of the health.
#[derive(Clone, Debug)]
pub struct LostSockets(watch::Sender<Health>);

impl LostSockets {
    pub fn new(health: watch::Sender<Health>) -> Self {
        Self(health)
    }

    /// Returns the text of the error, unless it was reported before.
    pub(crate) fn add(&self, address: &Address, error: ListenError) -> Option<String> {
        let error = format!("{:#}", anyhow::Error::new(error));
        let fault = format!("the wrapper does not listen on {error}");
        let is_new = self.0.send_if_modified(|health| {
            health.faults.insert(address.to_string(), fault.clone()).as_ref() != Some(&fault)
        });
        is_new.then_some(error)
    }

    pub(crate) fn remove(&self, address: &Address) {
        self.0.send_if_modified(|health| health.faults.remove(&address.to_string()).is_some());
    }
}
