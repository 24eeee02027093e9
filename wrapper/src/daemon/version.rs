//! The version of this program.

/// The commit of the source, which `cargo xtask dist` sets. Empty in other builds.
pub(crate) const REVISION: &str = match option_env!("GRIT_REVISION") {
    Some(revision) => revision,
    None => "",
};

/// The number, and the revision where it is known.
pub(crate) fn full(revision: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if revision.is_empty() { version.to_owned() } else { format!("{version} ({revision})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_includes_known_revision() {
        let number = env!("CARGO_PKG_VERSION");
        assert_eq!(full(""), number);
        assert_eq!(full("0123456789ab"), format!("{number} (0123456789ab)"));
    }
}
