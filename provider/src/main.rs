//! The provider's program.

use std::process::ExitCode;

use grit_provider::{Registry, plugin, schema::Unconfigured};

fn main() -> ExitCode {
    plugin::run(Registry::new("registry.terraform.io/runner-tools/grit", Unconfigured))
}
