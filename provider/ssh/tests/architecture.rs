//! The layers of the crate, read from its source.

use std::path::Path;

use grit_testkit::architecture::{Architecture, MAX_FILE_LINES, long_files};

/// From the highest to the lowest. A file imports its own layer and those below it.
const LAYERS: &[&[&str]] = &[
    &["lib.rs", "fuzz/", "check.rs"],
    &["connect/"],
    &["keys/"],
    &["session/"],
    &["command/", "trust/"],
    // Values, limits and errors that all of them share.
    &[
        "address.rs",
        "attribute.rs",
        "command/error.rs",
        "error.rs",
        "host_text.rs",
        "io_error.rs",
        "keys/error.rs",
        "limits.rs",
        "parent.rs",
        "route.rs",
        "secret.rs",
        "stream.rs",
        "target.rs",
        "trust/refusal.rs",
        "user_files.rs",
    ],
];

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

fn crate_source() -> Architecture {
    Architecture::read(Path::new(SOURCE))
}

#[test]
fn imports_lead_to_the_same_layer_or_below() {
    let found = crate_source().imports_that_run_up(LAYERS);
    assert!(
        found.is_empty(),
        "A file may import its own layer and those below it. Move the item down, or pass it as an argument:\n{}",
        found.join("\n")
    );
}

#[test]
fn no_files_import_each_other() {
    let circles = crate_source().circles();
    assert!(
        circles.is_empty(),
        "Files must not import each other, directly or through others. Move what both need into a file of its own:\n{circles:#?}"
    );
}

#[test]
fn only_sessions_name_russh() {
    let uses = crate_source().files_that_use(&["russh"]);
    assert!(!uses.is_empty(), "russh is not used: the rule checks nothing");
    let elsewhere: Vec<_> = uses.iter().filter(|(file, _)| !file.starts_with("session/")).collect();
    assert!(elsewhere.is_empty(), "only session/ may name russh: {elsewhere:#?}");
}

#[test]
fn no_file_exceeds_the_line_limit() {
    let found = long_files(Path::new(SOURCE));
    assert!(
        found.is_empty(),
        "A source file has at most {MAX_FILE_LINES} lines, tests included. Split it by subject, or move its tests to `tests.rs`:\n{}",
        found.join("\n")
    );
}
