//! An address that another process uses, while the wrapper supervises a runner that it has adopted.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};
use tracing::{error, info};

use crate::{
    daemon::{
        health::Health,
        listen::{self, Address, ListenError, Listener, Rules},
    },
    supervise::log_key as key,
};

/// Delay before the address is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// While it exists, the wrapper is not ready: its clients may be connected to another process.
pub(super) struct Unbound {
    address: Address,
    rules: Rules,
    health: watch::Sender<Health>,
}

impl Unbound {
    pub(super) fn new(
        (address, error): (&Address, ListenError),
        rules: Rules,
        health: &watch::Sender<Health>,
    ) -> Self {
        let unbound = Self { address: address.clone(), rules, health: health.clone() };
        let error = unbound.failed(error);
        error!(
            { key::ADDRESS } = %address,
            { key::ERROR } = error,
            "the adopted runner is supervised without this address; trying again"
        );
        unbound
    }

    /// Listens on the address as soon as possible.
    pub(super) async fn bind(self) -> Listener {
        loop {
            sleep(RETRY_DELAY).await;
            match listen::bind(&self.address, &self.rules).await {
                Ok(listener) => {
                    info!({ key::ADDRESS } = %self.address, { key::BOUND } = %listener, "listening");
                    self.health.send_modify(|health| {
                        health.unbound.remove(&self.address.to_string());
                    });
                    return listener;
                }
                Err(error) => {
                    self.failed(error);
                }
            }
        }
    }

    /// Reports the error, and returns its text.
    fn failed(&self, error: ListenError) -> String {
        let error = format!("{:#}", anyhow::Error::new(error));
        self.health.send_if_modified(|health| {
            health.unbound.insert(self.address.to_string(), error.clone()).as_ref() != Some(&error)
        });
        error
    }
}
