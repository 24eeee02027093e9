//! The managed resources, one file each, named as in the registry.

mod runner_drain;
mod runner_health;

pub use runner_drain::RunnerDrain;
pub use runner_health::RunnerHealth;

use std::sync::Arc;

use crate::{
    explain::{Code, Explained},
    process::{Configured, Settings, Shared},
    schema::{AttributePath, Diagnostics, DiagnosticsExt},
};

/// The configuration that a call needs for a connection, or an error that says why there is none.
fn configured(shared: &Shared, diags: &mut Diagnostics) -> Option<Arc<Configured>> {
    let happened = match shared.settings() {
        Settings::Configured(known) => return Some(known),
        Settings::Unknown => "The provider block contains a value that is not known yet.",
        Settings::Missing => "Terraform has not configured the provider.",
    };
    add_error(
        diags,
        AttributePath::root(),
        &Explained::new(
            Code::InvalidConfig,
            "Provider is not configured",
            happened,
            "In the provider block, use only values that do not depend on resources of the same apply.",
        ),
    );
    None
}

fn add_error(diags: &mut Diagnostics, path: AttributePath, explained: &Explained) {
    diags.fail_at(path, explained.summary.clone(), explained.detail());
}

/// Some hex digits that no other object has.
fn unique_suffix() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..8].to_owned()
}
