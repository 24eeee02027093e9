//! `--version`, without Terraform.

/// The commit of the source, which `cargo xtask dist` sets.
const REVISION: Option<&str> = option_env!("GRIT_REVISION");

pub(super) fn is_requested() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == "--version")
}

#[expect(
    clippy::print_stdout,
    reason = "stdout belongs to Terraform's handshake only if Terraform started the program"
)]
pub(super) fn print(name: &str) {
    println!("terraform-provider-{name} {}", text(REVISION));
}

/// The number, and the revision where it is known.
fn text(revision: Option<&str>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    revision.map_or_else(|| version.to_owned(), |revision| format!("{version} ({revision})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_includes_known_revision() {
        let number = env!("CARGO_PKG_VERSION");
        assert_eq!(text(None), number);
        assert_eq!(text(Some("0123456789ab")), format!("{number} (0123456789ab)"));
    }
}
