//! The state that the provider block and the resources of one process share.

use std::sync::{Arc, PoisonError, RwLock};

use crate::{
    config::provider_block::Configured, fleet::Drains, plan_guard::PlanGuard, plan_overlap::PlanOverlap,
    stored_drains::StoredDrains, transport::Selectors, worker_groups::WorkerGroups,
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

impl Shared {
    pub fn configuration(&self) -> ConfigurationState {
        self.configuration.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What selects the host of a connection besides its address; nothing while the provider block is unknown.
    pub(crate) fn selectors(&self) -> Selectors {
        match self.configuration() {
            ConfigurationState::Configured(known) => known.selectors(),
            ConfigurationState::Missing | ConfigurationState::Unknown => Selectors::default(),
        }
    }

    pub(crate) fn configure(&self, state: ConfigurationState) {
        *self.configuration.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
