//! The architecture of the wrapper: its layers, circles of imports, and what the lowest layer does not use.

use std::path::Path;

use grit_testkit::architecture::{Architecture, MAX_FILE_LINES, long_files};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

fn read() -> Architecture {
    Architecture::read(Path::new(SOURCE))
}

#[test]
fn each_layer_imports_only_lower_layers() {
    let found = read().imports_that_run_up(&[
        &["lib.rs"],
        &["cli/"],
        &["daemon/"],
        &["runner/"],
        &["supervise/"],
        &["text/"],
    ]);
    assert!(
        found.is_empty(),
        "the order of the layers is cli, daemon, runner, supervise, text. \
         Move the item to the lowest layer that needs it, or pass it as an argument:\n{}",
        found.join("\n")
    );
}

#[test]
fn no_files_import_each_other() {
    let circles: Vec<_> = read().circles().iter().map(|circle| circle.join(", ")).collect();
    assert!(
        circles.is_empty(),
        "files must not import each other, directly or through other files. Move what they share to a file \
         that both can import:\n{}",
        circles.join("\n")
    );
}

#[test]
fn supervise_uses_no_servers_flags_or_environment_variables() {
    let paths = ["tonic", "hyper", "clap", "std::env::var", "std::env::var_os", "std::env::vars"];
    let used: Vec<_> = read()
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

#[test]
fn no_file_exceeds_the_line_limit() {
    let found = long_files(Path::new(SOURCE));
    assert!(
        found.is_empty(),
        "a source file has at most {MAX_FILE_LINES} lines, tests included. Split it by subject:\n{}",
        found.join("\n")
    );
}
