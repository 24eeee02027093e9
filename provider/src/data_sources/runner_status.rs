//! `data "grit_runner_status"`: what the wrappers of a map of runner managers report now.
//!
//! It changes nothing and requires nothing: a manager that cannot be reached is a value with its cause.

mod state;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, call,
    schema::{Schema, Value},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    client::Wrapper as _,
    config::{
        manager::{self, RunnerManagerArgs},
        provider_block::Configured,
    },
    explain::{self, health, protocol},
    fleet,
    process::{ConfigurationState, Shared},
    resources::configured,
};
use state::{ManagerStatus, StatusState};

/// How long a manager may take after the timeout to report why it was not reached.
const ERROR_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct RunnerStatus {
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Block for RunnerStatus {
    type Config = StatusState;
    type Output = StatusState;

    fn schema(&self) -> Schema {
        state::schema()
    }

    async fn check(&self, config: StatusState) -> Result<(), Problems> {
        config.check()
    }

    async fn run(&self, mut config: StatusState) -> Result<StatusState, Problems> {
        let start = Instant::now();
        config.check()?;
        let managers = manager::known(&config.runner_managers);
        if managers.is_empty() {
            config.managers = Value::Value(Default::default());
            return Ok(config);
        }
        if matches!(self.shared.configuration(), ConfigurationState::Unknown) {
            // The response to a read must not contain unknown values. Released versions of Terraform do not allow deferred responses.
            return Err(protocol::not_configured_at_read().into());
        }
        let known = configured(&self.shared)?;
        let stop = call().stop;
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(health::status_interrupted().into()),
            managers = read_all(&known, managers, start, config.timeout()) => {
                config.managers = Value::Value(managers);
                Ok(config)
            }
        }
    }
}

async fn read_all(
    known: &Configured,
    managers: BTreeMap<String, RunnerManagerArgs>,
    start: Instant,
    timeout: Duration,
) -> state::Statuses {
    let deadline = start + timeout;
    let statuses = fleet::for_each(managers, |key, manager| async move {
        let client = match manager.client(&key, known) {
            Ok(client) => client.until(deadline),
            Err(error) => return ManagerStatus::unreachable(&health::invalid_manager(&key, error)),
        };
        match timeout_at(deadline + ERROR_GRACE, client.read_status()).await {
            Ok(Ok(snapshot)) => ManagerStatus::of(&snapshot),
            Ok(Err(error)) => ManagerStatus::unreachable(&explain::explain(&key, &error)),
            Err(_) => ManagerStatus::unreachable(&health::status_timed_out(&key, timeout)),
        }
    });
    statuses.await.into_iter().map(|(key, status)| (key, Value::Value(status))).collect()
}
