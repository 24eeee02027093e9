//! The provider: zero-downtime updates of GitLab Runner managers inside `terraform apply`.
//!
//! The layers, each importing only what stands below it: [`plugin`] (how Terraform starts and stops us) and its `server` (Terraform's calls),
//! the resources, the objects of the configuration language, and below them what reaches the hosts. [`schema`] holds what resources are made
//! of, [`call`] what a call knows beyond its arguments, [`process`] what all calls of one process share.

mod assume_terminated;
pub mod call;
pub mod client;
pub mod config;
pub mod duration;
pub mod explain;
pub mod fleet;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod plan_guard;
pub mod plugin;
pub mod process;
pub mod provider;
pub mod resources;
pub mod schema;
mod server;
pub mod stored_drains;
pub mod transport;
mod wire;

pub use server::Registry;

use std::sync::Arc;

/// The provider `grit`, with everything that it offers.
pub fn registry() -> Registry {
    let shared = Arc::<process::Shared>::default();
    Registry::new("registry.terraform.io/runner-tools/grit", provider::Grit::new(shared.clone()))
        .resource("grit_runner_drain", resources::RunnerDrain::new(shared.clone()))
        .resource("grit_runner_health", resources::RunnerHealth::new(shared))
}
