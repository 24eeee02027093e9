//! The program that Terraform starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    grit_static_libc::limit_name_services();
    grit_plugin::run(grit_provider::registry())
}
