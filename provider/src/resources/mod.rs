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

use grit_plugin::schema::{AttributePath, Diagnostics};

use crate::{
    config::provider_block::Configured,
    explain::protocol,
    process::{ConfigurationState, Shared},
};

/// The configuration for a connection, or an error.
pub(crate) fn configured(shared: &Shared, diags: &mut Diagnostics) -> Option<Arc<Configured>> {
    let unknown = match shared.configuration() {
        ConfigurationState::Configured(known) => return Some(known),
        ConfigurationState::Unknown => true,
        ConfigurationState::Missing => false,
    };
    protocol::not_configured(unknown).error(AttributePath::root(), diags);
    None
}

/// A random suffix of an id.
pub(crate) fn unique_suffix() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..8].to_owned()
}
