//! The program that Terraform starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    grit_provider::plugin::run(grit_provider::registry())
}
