//! Files that `cargo xtask gen` writes.

use std::{env, fs, path::Path};

/// Asserts that a file has this text, or writes it for `cargo xtask gen`.
///
/// # Panics
///
/// If the file differs, with the first line that does; or if it cannot be written.
#[track_caller]
pub fn assert_generated(path: &Path, wanted: &str) {
    if env::var_os("GRIT_UPDATE_GENERATED").is_some() {
        fs::write(path, wanted).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let path = path.display();
    let lines = found.lines().zip(wanted.lines()).zip(1..);
    if let Some(((is, should), line)) = lines.into_iter().find(|((is, should), _)| is != should) {
        panic!("{path}:{line}: run `cargo xtask gen`\n  file:      {is}\n  generated: {should}");
    }
    assert!(found == wanted, "{path}: run `cargo xtask gen`");
}
