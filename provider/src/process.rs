//! What the provider block and the resources of one process share.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use crate::{
    client::WrapperClient,
    config::{
        manager::{InvalidManager, RunnerManagerArgs},
        provider_block::ProviderArgs,
        retry::RetryArgs,
        ssh::SshArgs,
    },
    fleet::{Drains, Retry},
    plan_guard::PlanGuard,
    stored_drains::StoredDrains,
    transport::Connector,
};

/// What the provider block and the resources of one process share.
#[derive(Debug, Default)]
pub struct Shared {
    configuration: RwLock<ConfigurationState>,
    /// Which instances are guarded, as this process has seen it.
    pub guard: PlanGuard,
    /// The drains of this process.
    pub drains: Drains,
    /// The guards of the state.
    pub stored_drains: StoredDrains,
}

/// Where the configuration stands.
#[derive(Debug, Clone, Default)]
pub enum ConfigurationState {
    /// Terraform has not configured this process.
    #[default]
    Missing,
    /// Some value is unknown: a plan whose provider block depends on what the apply makes.
    Unknown,
    Configured(Arc<Configured>),
}

/// A configuration without unknown values.
pub struct Configured {
    connector: Connector,
    ssh: SshArgs,
    retry: Option<RetryArgs>,
}

impl Configured {
    /// The configuration of a provider block whose every value is known. Connects to nothing and reads no file.
    pub(crate) fn new(block: ProviderArgs) -> Self {
        let (ssh, retry, max_handshakes) = block.into_parts();
        Self { connector: Connector::new(ssh.settings(max_handshakes)), ssh, retry }
    }

    /// Whether host keys are not verified.
    pub(crate) fn ignores_host_keys(&self) -> bool {
        self.ssh.ignores_host_keys()
    }

    /// A client of a manager's wrapper. `key` names the manager in every message.
    pub fn client(&self, key: &str, manager: &RunnerManagerArgs) -> Result<WrapperClient, InvalidManager> {
        let target = manager.target(key, &self.ssh)?;
        Ok(WrapperClient::new(self.connector.clone(), target))
    }

    /// The retry policy: a resource's object over the provider block's over the defaults.
    pub fn retry(&self, resource: Option<&RetryArgs>, default_attempts: Option<u32>) -> Retry {
        RetryArgs::resolve(resource, self.retry.as_ref(), default_attempts)
    }
}

impl Shared {
    /// The configuration as it is now.
    pub fn configuration(&self) -> ConfigurationState {
        self.configuration.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn configure(&self, state: ConfigurationState) {
        *self.configuration.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// Without the `ssh` object, which holds secrets.
impl fmt::Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configured").field("connector", &self.connector).finish_non_exhaustive()
    }
}
