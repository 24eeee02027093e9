//! Finds the programs of this workspace, as cargo built them.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The path of a built program, `grit-wrapper` say: in the folder of the profile that the caller was built with.
///
/// Cargo builds the programs of other packages only when asked to, so the error tells how.
pub fn built(name: &str) -> anyhow::Result<PathBuf> {
    let path = folder()?.join(name);
    if !path.is_file() {
        bail!(
            "{} is not there: run `cargo build --workspace --bins` (`cargo xtask test` does)",
            path.display()
        );
    }
    Ok(path)
}

/// The first program called `name` on PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// `target/debug` or `target/release`: tests run in `deps` below it, programs in it.
fn folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("find the running program")?;
    let folder = own.parent().context("the running program has no folder")?;
    let folder = match folder.file_name() {
        Some(name) if name == "deps" || name == "examples" => folder.parent().unwrap_or(Path::new("/")),
        _ => folder,
    };
    Ok(folder.to_owned())
}
