//! The layers of the crate, read from its source.

use std::path::Path;

use grit_testkit::architecture::{assert_layers, assert_line_limit, assert_named_only_in, assert_no_circles};

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

#[test]
fn imports_lead_to_the_same_layer_or_below() {
    assert_layers(Path::new(SOURCE), LAYERS);
}

#[test]
fn no_files_import_each_other() {
    assert_no_circles(Path::new(SOURCE));
}

#[test]
fn no_file_exceeds_the_line_limit() {
    assert_line_limit(Path::new(SOURCE));
}

#[test]
fn only_sessions_name_russh() {
    assert_named_only_in(Path::new(SOURCE), "russh", &["session/"]);
}
