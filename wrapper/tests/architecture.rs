//! The architecture of the wrapper: its layers, circles of imports, and what the lowest layer does not use.

use std::path::Path;

use grit_testkit::architecture::{Architecture, assert_layers, assert_line_limit, assert_no_circles};

/// From the highest to the lowest. A file imports its own layer and those below it.
const LAYERS: &[&[&str]] =
    &[&["lib.rs", "testing.rs"], &["cli/"], &["daemon/"], &["runner/"], &["supervise/"], &["text/"]];

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

#[test]
fn each_layer_imports_only_lower_layers() {
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
fn supervise_uses_no_servers_flags_or_environment_variables() {
    let paths = ["tonic", "hyper", "clap", "std::env::var", "std::env::var_os", "std::env::vars"];
    let used: Vec<_> = Architecture::read(Path::new(SOURCE))
        .files_that_use(&paths)
        .into_iter()
        .filter(|(file, _)| file.starts_with("supervise/"))
        .map(|(file, path)| format!("{file} uses {path}"))
        .collect();
    assert!(
        used.is_empty(),
        "supervise must not use tonic, hyper, clap or environment variables. The daemon passes what \
         supervise needs as arguments:\n{}",
        used.join("\n")
    );
}
