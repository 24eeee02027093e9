//! What the provider block and the resources of one process share.

use std::sync::{Arc, PoisonError, RwLock};

use crate::{
    config::retry::RetryArgs,
    fleet::{Drains, Retry},
    plan_guard::PlanGuard,
    stored_drains::StoredDrains,
    transport::Connector,
};

/// What the provider block and the resources of one process share.
#[derive(Debug, Default)]
pub struct Shared {
    settings: RwLock<Settings>,
    /// Which instances are guarded, as this process has seen it.
    pub guard: PlanGuard,
    /// The drains of this process.
    pub drains: Drains,
    /// The guards of the state.
    pub stored_drains: StoredDrains,
}

/// Where the configuration stands.
#[derive(Debug, Clone, Default)]
pub enum Settings {
    /// Terraform has not configured this process.
    #[default]
    Missing,
    /// Some value is unknown: a plan whose provider block depends on what the apply makes.
    Unknown,
    Configured(Arc<Configured>),
}

/// A configuration without unknown values.
#[derive(Debug)]
pub struct Configured {
    pub connector: Connector,
    pub(crate) retry: Option<RetryArgs>,
}

impl Configured {
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

    pub(crate) fn configure(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }
}
