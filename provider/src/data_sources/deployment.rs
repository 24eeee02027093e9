//! `data "grit_deployment"`: the runner managers of another deployment version, from its state.

mod state;

use std::time::Duration;

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, call,
    schema::{AttributePath, Schema, Value},
};
use tokio::time::Instant;

use crate::{
    config::{contract, object::Object as _},
    deployment::{self, Limits, OUTPUT},
    explain::{deployment as explain, values},
};
use state::DeploymentState;

/// Of a whole read.
const TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Deployment;

#[async_trait]
impl Block for Deployment {
    type Config = DeploymentState;
    type Output = DeploymentState;

    fn schema(&self) -> Schema {
        state::schema()
    }

    async fn check(&self, config: DeploymentState) -> Result<(), Problems> {
        config.check().map(|_| ())
    }

    async fn run(&self, mut config: DeploymentState) -> Result<DeploymentState, Problems> {
        let start = Instant::now();
        config.check()?;
        // Terraform reads a data source when all its values are known.
        let Some(source) = config.source() else { return Err(Problems::default()) };
        let path = AttributePath::new(source.attribute());
        let limits = Limits { stop: call().stop, timeout: TIMEOUT, start };
        let value = deployment::read(source.clone(), &limits).await;
        let value = value.map_err(|error| explain::not_read(&source, &error).at(path.clone()))?;
        let mut problems = Problems::default();
        let (managers, unused) = contract::read(&value, &AttributePath::new(OUTPUT), &mut problems);
        // Also beside errors: a misspelled name can be the cause of one.
        if !unused.is_empty() {
            call().warn(values::unused_attributes(&unused).at(path.clone()));
        }
        explain::invalid_managers(&source, problems, &path).or(())?;
        config.runner_managers = Value::Value(managers);
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
