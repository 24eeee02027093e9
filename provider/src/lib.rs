//! The provider: zero-downtime updates of GitLab Runner managers inside `terraform apply`.
//!
//! `provider/tests/architecture.rs` lists the layers of this crate, and checks that each imports only itself and lower layers.
//! CONTRIBUTING.md describes them.

mod actions;
mod client;
mod config;
mod context;
mod data_sources;
mod deployment;
mod duration;
mod explain;
mod fleet;
mod gitlab;
mod manager;
mod random;
mod resources;
mod run;
#[doc(hidden)]
pub mod testing;

use std::sync::Arc;

use grit_plugin::Registry;
use grit_ssh::{child, open_files};

use context::{Context, Grit};

/// The provider `grit`.
pub fn registry() -> Registry {
    registry_of(Arc::default())
}

fn registry_of(context: Arc<Context>) -> Registry {
    Registry::new("registry.terraform.io/runner-tools/grit", Grit { context: context.clone() })
        .version(version(REVISION))
        .quiet(&["hyper_rustls", "russh"])
        .at_start(open_files::raise_limit)
        // Unused SSH sessions, and with them their commands, are still open. The runtime does not wait for the tasks that end them.
        .at_exit(child::end_all)
        .resource("grit_runner_drain", resources::RunnerDrain { context: context.clone() })
        .resource("grit_runner_health", resources::RunnerHealth { context: context.clone() })
        .resource("grit_runner_shutdown", resources::RunnerShutdown { context: context.clone() })
        .data_source("grit_deployment", data_sources::Deployment)
        .data_source("grit_runner_status", data_sources::RunnerStatus { context: context.clone() })
        .action("grit_drain", actions::Drain { context })
}

/// The commit of the source, which `cargo xtask dist` sets.
const REVISION: Option<&str> = option_env!("GRIT_REVISION");

/// The number, and the revision where it is known.
fn version(revision: Option<&str>) -> String {
    let number = env!("CARGO_PKG_VERSION");
    revision.map_or_else(|| number.to_owned(), |revision| format!("{number} ({revision})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_includes_known_revision() {
        let number = env!("CARGO_PKG_VERSION");
        assert_eq!(version(None), number);
        assert_eq!(version(Some("0123456789ab")), format!("{number} (0123456789ab)"));
    }
}
