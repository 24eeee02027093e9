//! `data "grit_deployment"`: the runner managers of another deployment version, from its state.

mod state;

use async_trait::async_trait;
use grit_plugin::{
    call,
    schema::{AttributePath, DataSource, Diagnostics, DiagnosticsExt, Dynamic, Schema},
};
use tokio::time::Instant;

use crate::{
    config::contract,
    deployment::{self, FormatError, Limits, OUTPUT, ReadError},
    explain::{deployment as explain, values},
};
use state::DeploymentState;

#[derive(Debug)]
pub struct Deployment;

#[async_trait]
impl DataSource for Deployment {
    type State<'a> = DeploymentState;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(state::schema())
    }

    async fn validate<'a>(&self, diags: &mut Diagnostics, config: DeploymentState) -> Option<()> {
        config.check(diags);
        (!diags.has_errors()).then_some(())
    }

    async fn read<'a>(
        &self,
        diags: &mut Diagnostics,
        mut config: DeploymentState,
    ) -> Option<DeploymentState> {
        let start = Instant::now();
        let source = config.check(diags);
        if diags.has_errors() {
            return None;
        }
        let source = source?;
        let path = AttributePath::new(source.attribute());
        let limits = Limits { stop: call().stop, timeout: config.timeout(), start };
        let value = match deployment::read(source.clone(), &limits).await {
            Ok(value) => value,
            Err(ReadError::Format(FormatError::NoOutput(others))) if config.allows_missing() => {
                explain::missing_output(&source, &others).warning(path.clone(), diags);
                Dynamic::Object(std::collections::BTreeMap::new())
            }
            Err(error) => {
                explain::not_read(&source, &error).error(path, diags);
                return None;
            }
        };
        let mut problems = Diagnostics::default();
        let contract = contract::read(&value, &AttributePath::new(OUTPUT), &mut problems);
        // Also beside errors: a misspelled name can be the cause of one.
        if !contract.unused.is_empty() {
            values::unused_attributes(&contract.unused).warning(path.clone(), diags);
        }
        if problems.has_errors() {
            explain::invalid_managers(&source, problems, &path, diags);
            return None;
        }
        config.runner_managers = contract.managers;
        Some(config)
    }
}

#[cfg(test)]
mod tests;
