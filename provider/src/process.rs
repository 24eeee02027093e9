//! The state that the provider block and the resources of one process share.

use grit_ssh::Selectors;
use std::sync::{Arc, PoisonError, RwLock};

use grit_plugin::{Problems, schema::AttributePath};

use crate::{
    config::{
        manager::{RunnerManagerArgs, RunnerManagers},
        provider_block::Configured,
        same_manager,
    },
    ending_drains::EndingDrains,
    fleet::Drains,
    plan_guard::PlanGuard,
    plan_overlap::PlanOverlap,
    shared_runners::SharedRunners,
    stored_drains::StoredDrains,
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
    /// The drain resources with one runner manager.
    pub shared_runners: SharedRunners,
    pub drains: Drains,
    pub stored_drains: StoredDrains,
    /// The drain resources that the plan destroys or replaces.
    pub ending_drains: EndingDrains,
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

impl ConfigurationState {
    fn known(self) -> Option<Arc<Configured>> {
        match self {
            Self::Configured(known) => Some(known),
            Self::Missing | Self::Unknown => None,
        }
    }
}

impl Shared {
    pub fn configuration(&self) -> ConfigurationState {
        self.configuration.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What selects the host of a connection besides its address; nothing while the provider block is unknown.
    pub(crate) fn selectors(&self) -> Selectors {
        self.configuration().known().map(|known| known.selectors()).unwrap_or_default()
    }

    /// The wrapper that a connection to this manager reaches, in one notation; `None` while a value that selects it is unknown.
    pub(crate) fn wrapper_of(&self, manager: &RunnerManagerArgs) -> Option<String> {
        manager.identity(self.configuration().known()?.selectors())
    }

    /// One error for each second key of one runner manager. While the provider block is unknown, only instance ids are compared.
    pub(crate) fn same_managers(&self, managers: &RunnerManagers) -> Problems {
        let wrapper = |manager: &RunnerManagerArgs| self.wrapper_of(manager);
        let path = AttributePath::new("runner_managers");
        let mut problems = Problems::default();
        same_manager::refuse(managers.iter().flatten(), &path, wrapper, &mut problems);
        problems
    }

    pub(crate) fn configure(&self, state: ConfigurationState) {
        *self.configuration.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
