//! The managed resources.

pub(crate) mod draining;
mod early_drain;
mod runner_drain;
mod runner_health;
mod runner_shutdown;

pub use runner_drain::RunnerDrain;
pub use runner_health::RunnerHealth;
pub use runner_shutdown::RunnerShutdown;

use std::sync::Arc;

use grit_plugin::Problem;

use crate::{
    config::provider_block::Configured,
    explain::protocol,
    process::{ConfigurationState, Shared},
};

/// The configuration for a connection.
pub(crate) fn configured(shared: &Shared) -> Result<Arc<Configured>, Problem> {
    match shared.configuration() {
        ConfigurationState::Configured(known) => Ok(known),
        ConfigurationState::Unknown => Err(protocol::not_configured(true)),
        ConfigurationState::Missing => Err(protocol::not_configured(false)),
    }
}

/// A random suffix of an id.
pub(crate) fn unique_suffix() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..8].to_owned()
}
