//! The functions `provider::grit::…`, one file each.

mod managers_from_grit;
mod validate_managers;

pub use managers_from_grit::ManagersFromGrit;
pub use validate_managers::ValidateManagers;

use grit_plugin::schema::AttributeType;

use crate::config::manager::RunnerManagerArgs;

/// The type of the map of runner managers, as resources take it.
fn runner_managers() -> AttributeType {
    AttributeType::AttributeMap(RunnerManagerArgs::attributes())
}
