//! The provider: zero-downtime updates of GitLab Runner managers inside `terraform apply`.
//!
//! The layers, each importing only what stands below it: [`plugin`] (how Terraform starts and stops us) and `server` (Terraform's calls),
//! the resources, the state of the process, the objects of the configuration language, and below them what reaches the hosts.
//! `provider/tests/architecture.rs` has them all and checks them. [`schema`] holds what resources are made of, [`call`] what a call knows
//! beyond its arguments.

mod assume_terminated;
pub mod call;
mod client;
mod config;
mod duration;
mod explain;
mod fleet;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod plan_guard;
pub mod plugin;
mod process;
mod provider;
mod resources;
pub mod schema;
mod server;
mod stored_drains;
#[doc(hidden)]
pub mod testing;
mod transport;
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
