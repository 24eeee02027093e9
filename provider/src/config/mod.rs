//! The provider block: what it says, and how resources get at it.
//!
//! Validating reads the files that the block names, and never the network. Configuring connects to nothing and reads no file; it takes
//! unknown and null values, because Terraform plans with them. What is missing shows when a connection needs it.

mod args;
mod proxy_jump;
mod ssh;

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;

use crate::{
    args::retry::RetryArgs,
    explain::{Code, add_code},
    fleet::{Drains, Retry},
    resources::{
        plan_guard::{self, PlanGuard},
        stored_guards::StoredGuards,
    },
    schema::{AttributePath, Diagnostics, DiagnosticsExt, Provider, Schema},
    transport::Connector,
};
use args::ProviderArgs;

/// The provider `grit`.
#[derive(Debug)]
pub struct Grit {
    shared: Arc<Shared>,
}

/// What the provider block and the resources of one process share.
#[derive(Debug, Default)]
pub struct Shared {
    settings: RwLock<Settings>,
    /// Which instances are guarded, as this process has seen it.
    pub guard: PlanGuard,
    /// The drains of this process.
    pub drains: Drains,
    /// The guards of the state.
    pub stored_guards: StoredGuards,
}

/// Where the configuration stands.
#[derive(Debug, Clone, Default)]
pub enum Settings {
    /// Terraform has not configured this process.
    #[default]
    Missing,
    /// Some value is unknown: a plan whose provider block depends on what the apply makes.
    Unknown,
    Known(Arc<Known>),
}

/// A configuration without unknown values.
#[derive(Debug)]
pub struct Known {
    pub connector: Connector,
    retry: Option<RetryArgs>,
}

impl Known {
    /// The retry policy: a resource's object over the provider block's over the defaults.
    pub fn retry(&self, resource: Option<&RetryArgs>, default_attempts: Option<u32>) -> Retry {
        RetryArgs::resolve(resource, self.retry.as_ref(), default_attempts)
    }
}

impl Shared {
    /// The configuration as it is now.
    pub fn settings(&self) -> Settings {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Grit {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

#[async_trait]
impl Provider for Grit {
    type Config = ProviderArgs;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(args::schema())
    }

    async fn validate(&self, diags: &mut Diagnostics, config: ProviderArgs) -> Option<()> {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        config.check(home, diags);
        add_code(diags, Code::InvalidConfig);
        (!diags.has_errors()).then_some(())
    }

    async fn configure(&self, diags: &mut Diagnostics, config: ProviderArgs, _: &str) -> Option<()> {
        // A process that stays for several runs (`--debug`) starts each of them with an empty guard.
        self.shared.drains.reset();
        self.shared.stored_guards.reset();
        let switch = std::env::var(plan_guard::VARIABLE).ok();
        match self.shared.guard.reset(switch.as_deref()) {
            Ok(false) => {}
            Ok(true) => diags.warn(
                "Plans that drain live runners are not refused",
                format!("{}=off switches the check off for this run.", plan_guard::VARIABLE),
            ),
            Err(invalid) => {
                diags.fail(
                    "Environment variable has an invalid value",
                    format!("{invalid}. `off` lets plans through that would drain live runners."),
                );
                add_code(diags, Code::InvalidConfig);
                return None;
            }
        }
        let settings = if config.is_known() {
            let variable = |name: &str| std::env::var(name).ok();
            let options = config.ssh_options().or_environment(variable);
            if options.trust.insecure_ignore_host_key {
                diags.warn_at(
                    AttributePath::new("ssh").attribute("insecure_ignore_host_key"),
                    "Host keys are not verified",
                    "Whoever answers at a manager's address can read and forge the commands of this provider. Give `known_hosts`, \
                     `host_keys`, or `host_key` in the manager's entry.",
                );
            }
            Settings::Known(Arc::new(Known {
                connector: Connector::new(options),
                retry: config.retry.as_option(),
            }))
        } else {
            Settings::Unknown
        };
        *self.shared.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        Some(())
    }
}
