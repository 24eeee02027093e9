//! How Terraform starts and stops us.

use std::process::ExitCode;

use crate::Registry;

/// The whole life of a provider's process: what `main` calls.
///
/// For now it only refuses to run: the server comes with the next change.
#[expect(clippy::print_stderr, reason = "the sentence for who starts the program by hand")]
#[expect(clippy::needless_pass_by_value, reason = "the server will own it")]
pub fn run(registry: Registry) -> ExitCode {
    eprintln!("The provider {} cannot serve yet.", registry.name());
    ExitCode::FAILURE
}
