//! The provider block: validate and configure.
//!
//! Validate reads the files of the block. Configure reads only the files of environment variables, and accepts unknown and null values, because Terraform plans with them.
//! Neither opens a connection. A missing value is reported when a connection needs it.

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::schema::{AttributePath, Diagnostics, DiagnosticsExt, Provider, Schema, is_known};

use crate::{
    config::provider_block::{self, Configured, ProviderArgs},
    explain::{plan, values},
    plan_guard,
    process::{ConfigurationState, Shared},
};

#[derive(Debug)]
pub struct Grit {
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Provider for Grit {
    type Config = ProviderArgs;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(provider_block::schema())
    }

    async fn validate(&self, diags: &mut Diagnostics, config: ProviderArgs) -> Option<()> {
        let home = |name: &str| (name == "HOME").then(|| std::env::var(name).ok()).flatten();
        config.or_environment(home).check(diags);
        (!diags.has_errors()).then_some(())
    }

    async fn configure(&self, diags: &mut Diagnostics, config: ProviderArgs, _: &str) -> Option<()> {
        // A process of `--debug` serves several runs. Each run starts without the drain resources of the previous one.
        self.shared.drains.reset();
        self.shared.stored_drains.reset();
        self.shared.ending_drains.reset();
        self.shared.overlap.reset();
        self.shared.worker_groups.reset();
        let switch = std::env::var(plan_guard::VARIABLE).ok();
        match self.shared.guard.reset(switch.as_deref()) {
            Ok(off) => {
                self.shared.shared_runners.reset(off);
                if off {
                    plan::check_disabled().warning(AttributePath::root(), diags);
                }
            }
            Err(invalid) => {
                plan::invalid_switch(&invalid).error(AttributePath::root(), diags);
                return None;
            }
        }
        let state = if is_known(&config) {
            let configured = Configured::new(config.or_environment(|name| std::env::var(name).ok()));
            configured.check_variables(diags);
            if configured.ignores_host_keys() {
                values::host_keys_not_verified()
                    .warning(AttributePath::new("ssh").attribute("insecure_ignore_host_key"), diags);
            }
            ConfigurationState::Configured(Arc::new(configured))
        } else {
            ConfigurationState::Unknown
        };
        self.shared.configure(state);
        Some(())
    }
}
