//! The pictures of `docs/pictures/`. `cargo xtask gen` writes them.
//!
//! Two of them are drawn from descriptions in this directory, and two from recorded events: `cargo xtask gen --record` runs the scenarios of
//! `tests/tests/e2e/pictures.rs`, which records them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod call_path;
mod runner_states;

use std::{
    fs,
    path::{Path, PathBuf},
};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(name)
}

/// Asserts that the file is as drawn, or writes it.
#[track_caller]
fn compare(name: &str, svg: &str) {
    let path = path(name);
    if std::env::var_os("GRIT_UPDATE_GENERATED").is_some() {
        fs::write(path, svg).unwrap();
        return;
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == svg, "docs/pictures/{name} differs from its description: run `cargo xtask gen`");
}
