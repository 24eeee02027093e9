//! `explain` is the one place that chooses the texts of diagnostics.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::Path};

/// Adds the lines of all files below `directory` that create a diagnostic.
fn find(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_allowed = path.ends_with("explain") || path.ends_with("schema/diagnostics.rs");
        if is_allowed {
            continue;
        } else if path.is_dir() {
            find(&path, found);
        } else {
            let source = fs::read_to_string(&path).unwrap();
            let creates = |line: &str| {
                [".fail(", ".fail_at(", ".warn(", ".warn_at("].iter().any(|it| line.contains(it))
            };
            let lines = source.lines().zip(1..).filter(|(line, _)| creates(line));
            found.extend(lines.map(|(line, number)| format!("{}:{number}: {}", path.display(), line.trim())));
        }
    }
}

#[test]
fn only_explain_creates_diagnostics() {
    let mut found = Vec::new();
    find(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(
        found.is_empty(),
        "add a function to a module of `explain` that returns the text, and report it with `.error(path, diags)` or \
         `.warning(path, diags)`:\n{}",
        found.join("\n")
    );
}
