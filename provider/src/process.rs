//! The state that the provider block and the resources of one process share.

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
    plan_overlap::PlanOverlap,
    stored_drains::StoredDrains,
    transport::Connector,
    worker_groups::WorkerGroups,
};

/// The state that the provider block and the resources of one process share.
#[derive(Debug, Default)]
pub struct Shared {
    configuration: RwLock<ConfigurationState>,
    /// The drain resources that this process has planned and created.
    pub guard: PlanGuard,
    /// The managers that the plan keeps, and those that it retires.
    pub overlap: PlanOverlap,
    pub drains: Drains,
    pub stored_drains: StoredDrains,
    /// The autoscaling groups of the managers of health checks.
    pub worker_groups: WorkerGroups,
}

/// The state of the configuration.
#[derive(Debug, Clone, Default)]
pub enum ConfigurationState {
    #[default]
    Missing,
    /// A value is unknown: a plan whose provider block depends on resources of the apply.
    Unknown,
    Configured(Arc<Configured>),
}

pub struct Configured {
    connector: Connector,
    ssh: SshArgs,
    retry: Option<RetryArgs>,
}

impl Configured {
    /// The configuration of a provider block without unknown values. Opens no connection and reads no file.
    pub(crate) fn new(block: ProviderArgs) -> Self {
        let (ssh, retry, max_handshakes) = block.into_parts();
        Self { connector: Connector::new(ssh.settings(max_handshakes)), ssh, retry }
    }

    pub(crate) fn ignores_host_keys(&self) -> bool {
        self.ssh.ignores_host_keys()
    }

    /// A client of the wrapper. `key` is the name of the runner manager in messages.
    pub fn client(&self, key: &str, manager: &RunnerManagerArgs) -> Result<WrapperClient, InvalidManager> {
        let target = manager.target(key, &self.ssh)?;
        Ok(WrapperClient::new(self.connector.clone(), target))
    }

    /// The retry policy. Precedence: resource, provider block, default.
    pub fn retry(&self, resource: Option<&RetryArgs>, default_attempts: Option<u32>) -> Retry {
        RetryArgs::resolve(resource, self.retry.as_ref(), default_attempts)
    }
}

impl Shared {
    pub fn configuration(&self) -> ConfigurationState {
        self.configuration.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn configure(&self, state: ConfigurationState) {
        *self.configuration.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// Without the `ssh` object, which contains secrets.
impl fmt::Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configured").field("connector", &self.connector).finish_non_exhaustive()
    }
}
