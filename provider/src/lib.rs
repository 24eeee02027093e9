//! The provider: zero-downtime updates of GitLab Runner managers inside `terraform apply`.
//!
//! `provider/tests/architecture.rs` lists the layers of this crate, and checks that each imports only itself and lower layers.
//! CONTRIBUTING.md describes them.

mod actions;
mod assume_terminated;
pub mod call;
mod client;
mod config;
mod data_sources;
mod deployment;
mod duration;
mod ending_drains;
mod explain;
mod fleet;
mod functions;
mod gitlab;
mod log_key;
mod plan_guard;
mod plan_overlap;
pub mod plugin;
mod process;
mod provider;
mod resources;
pub mod schema;
mod server;
mod shared_runners;
mod stored_drains;
#[doc(hidden)]
pub mod testing;
mod wire;
mod worker_groups;

pub use server::Registry;

use std::sync::Arc;

/// The provider `grit`.
pub fn registry() -> Registry {
    let shared = Arc::<process::Shared>::default();
    Registry::new("registry.terraform.io/runner-tools/grit", provider::Grit { shared: shared.clone() })
        .resource("grit_runner_drain", resources::RunnerDrain { shared: shared.clone() })
        .resource("grit_runner_health", resources::RunnerHealth { shared: shared.clone() })
        .resource("grit_runner_shutdown", resources::RunnerShutdown { shared: shared.clone() })
        .data_source("grit_deployment", data_sources::Deployment)
        .data_source("grit_runner_status", data_sources::RunnerStatus { shared: shared.clone() })
        .function("managers_from_grit", functions::ManagersFromGrit)
        .function("validate_managers", functions::ValidateManagers)
        .action("grit_cancel_drain", actions::CancelDrain { shared: shared.clone() })
        .action("grit_drain", actions::Drain { shared: shared.clone() })
        .action("grit_start", actions::Start { shared })
}
