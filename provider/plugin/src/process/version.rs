//! `--version`, without Terraform.

pub(super) fn is_requested() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == "--version")
}

#[expect(
    clippy::print_stdout,
    reason = "stdout belongs to Terraform's handshake only if Terraform started the program"
)]
pub(super) fn print(name: &str, version: &str) {
    println!("terraform-provider-{name} {version}");
}
