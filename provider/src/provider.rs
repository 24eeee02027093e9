//! The provider block: validate and configure.
//!
//! Validate reads the files of the block. Configure reads only the files of environment variables, and accepts unknown and null values, because Terraform plans with them.
//! Neither opens a connection. A missing value is reported when a connection needs it.

use std::sync::Arc;

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, call,
    schema::{AttributePath, Schema, is_known},
};

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
impl Block for Grit {
    type Config = ProviderArgs;
    type Output = ();

    fn schema(&self) -> Schema {
        provider_block::schema()
    }

    async fn check(&self, config: ProviderArgs) -> Result<(), Problems> {
        let home = |name: &str| (name == "HOME").then(|| std::env::var(name).ok()).flatten();
        let mut problems = Problems::default();
        config.or_environment(home).check(&mut problems);
        problems.or(())
    }

    async fn run(&self, config: ProviderArgs) -> Result<(), Problems> {
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
                    call().warn(plan::check_disabled());
                }
            }
            Err(invalid) => {
                return Err(plan::invalid_switch(&invalid).into());
            }
        }
        let state = if is_known(&config) {
            let configured = Configured::new(config.or_environment(|name| std::env::var(name).ok()));
            configured.check_variables();
            if configured.ignores_host_keys() {
                call().warn(
                    values::host_keys_not_verified()
                        .at(AttributePath::new("ssh").attribute("insecure_ignore_host_key")),
                );
            }
            ConfigurationState::Configured(Arc::new(configured))
        } else {
            ConfigurationState::Unknown
        };
        self.shared.configure(state);
        Ok(())
    }
}
