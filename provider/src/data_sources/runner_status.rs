//! `data "grit_runner_status"`: what the wrappers of a map of runner managers report now.
//!
//! It changes nothing and requires nothing: a manager that cannot be reached is a value with its cause.

mod state;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, call,
    schema::{Schema, Value},
};
use tokio::time::Instant;

use crate::{
    config::{manager, object::Object as _},
    context::Context,
    explain::{self, health, protocol},
    fleet::{self, Unread},
};
use state::{ManagerStatus, StatusState};

/// Of a whole read.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct RunnerStatus {
    pub context: Arc<Context>,
}

#[async_trait]
impl Block for RunnerStatus {
    type Config = StatusState;
    type Output = StatusState;

    fn schema(&self) -> Schema {
        state::schema()
    }

    async fn check(&self, config: StatusState) -> Result<(), Problems> {
        config.check()?;
        self.context.require_addresses(&config.runner_managers)
    }

    async fn run(&self, mut config: StatusState) -> Result<StatusState, Problems> {
        let start = Instant::now();
        config.check()?;
        if manager::known(&config.runner_managers).next().is_none() {
            config.managers = Value::Value(Default::default());
            return Ok(config);
        }
        if self.context.is_unknown() {
            // The response to a read must not contain unknown values. Released versions of Terraform do not allow deferred responses.
            return Err(protocol::not_configured_at_read().into());
        }
        self.context.require_addresses(&config.runner_managers)?;
        let managers = manager::resolve(&config.runner_managers, &*self.context.configured()?);
        let stop = call().stop;
        let statuses = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(health::status_interrupted().into()),
            statuses = fleet::read_all(managers, start + TIMEOUT) => statuses,
        };
        let statuses = statuses.into_iter().map(|(key, status)| {
            let status = match status {
                Ok(snapshot) => ManagerStatus::of(&snapshot),
                Err(unread) => ManagerStatus::unreachable(&match unread {
                    Unread::Invalid(invalid) => explain::invalid_manager(&key, &invalid),
                    Unread::Failed(error) | Unread::CutOff(error) => explain::explain(&key, &error),
                    Unread::Late => health::status_timed_out(&key, TIMEOUT),
                }),
            };
            (key, Value::Value(status))
        });
        config.managers = Value::Value(statuses.collect());
        Ok(config)
    }
}
