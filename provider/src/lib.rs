//! The provider: zero-downtime updates of GitLab Runner managers inside `terraform apply`.
//!
//! `provider/tests/architecture.rs` lists the layers of this crate, and checks that each imports only itself and lower layers.
//! CONTRIBUTING.md describes them.

mod assume_terminated;
pub mod call;
mod child;
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

/// The provider `grit`.
pub fn registry() -> Registry {
    let shared = Arc::<process::Shared>::default();
    Registry::new("registry.terraform.io/runner-tools/grit", provider::Grit::new(shared.clone()))
        .resource("grit_runner_drain", resources::RunnerDrain::new(shared.clone()))
        .resource("grit_runner_health", resources::RunnerHealth::new(shared))
}
