//! The paths of the programs.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// A program that a test needs is missing.
#[derive(Debug, Error)]
pub enum MissingBinary {
    #[error("neither `terraform` nor `tofu` is on PATH: install one of them")]
    Terraform,
    #[error("{} is missing: build it with `cargo build --workspace --bins`, or run the tests with `cargo xtask test`", path.display())]
    NotBuilt { path: PathBuf },
    #[error("cannot tell where this program is")]
    Unknown(#[source] std::io::Error),
}

/// The core to run instead of the one on PATH. `cargo xtask test --core` sets it.
const CORE: &str = "GRIT_TEST_CORE";

/// The core of this run: the one that [`CORE`] names, otherwise the first of `terraform` and `tofu` on PATH.
///
/// # Errors
///
/// If neither exists.
pub fn terraform() -> Result<PathBuf, MissingBinary> {
    if let Some(core) = std::env::var_os(CORE).filter(|core| !core.is_empty()) {
        return Ok(core.into());
    }
    on_path("terraform").or_else(|| on_path("tofu")).ok_or(MissingBinary::Terraform)
}

/// A program of this workspace, built in the profile of the caller.
///
/// # Errors
///
/// If it has not been built.
pub fn built(name: &str) -> Result<PathBuf, MissingBinary> {
    let own = std::env::current_exe().map_err(MissingBinary::Unknown)?;
    // Tests are in `target/PROFILE/deps`, programs one directory up.
    let folder = own.parent().unwrap_or(Path::new(""));
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let path = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if path.is_file() { Ok(path) } else { Err(MissingBinary::NotBuilt { path }) }
}

/// A program on PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
