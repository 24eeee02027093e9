//! Programs as they are released: optimized, stripped, statically linked, so that they run on every Linux of this architecture, and with the
//! same bytes in every directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::steps::{cargo, output, root, run as execute, target};

/// Builds programs of these packages, and returns their directory.
///
/// What is released is built one package at a time: a build of several packages unifies their features.
pub(crate) fn build(packages: &[&str], programs: &[&str]) -> anyhow::Result<PathBuf> {
    let host = host()?;
    let mut command = cargo(&["build", "--locked", "--release"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command.args(programs.iter().flat_map(|program| ["--bin", program]));
    // With `--target`, the flags do not apply to procedural macros, which cannot be linked statically.
    command.args(["--target", &host]);
    let mut flags = remapped_paths()?;
    if host.contains("linux") {
        flags.push("-Ctarget-feature=+crt-static".to_owned());
    }
    command.args(["--config", &format!("target.{host}.rustflags={flags:?}")]);
    // These would replace the flags above.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env("GRIT_REVISION", revision()?);
    execute(&mut command)?;
    Ok(target().join(host).join("release"))
}

/// The commit of this checkout, with a mark if files differ from it. `GRIT_REVISION` overrides it, for sources without a checkout.
pub(crate) fn revision() -> anyhow::Result<String> {
    if let Ok(revision) = std::env::var("GRIT_REVISION") {
        return Ok(revision);
    }
    let git = |words: &[&str]| {
        output(Command::new("git").args(words).current_dir(root()))
            .context("no git checkout for the revision: set GRIT_REVISION")
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(if is_clean { commit } else { format!("{commit}-dirty") })
}

/// The target triple of this machine.
pub(crate) fn host() -> anyhow::Result<String> {
    let text = output(Command::new("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` does not print its host")
}

/// Flags that replace the paths of this machine in programs: of panics, for example.
fn remapped_paths() -> anyhow::Result<Vec<String>> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir().context("neither CARGO_HOME nor HOME is set")?.join(".cargo"),
    };
    let flag = |path: &Path, name: &str| format!("--remap-path-prefix={}={name}", path.display());
    let mut flags = vec![flag(&root(), "/source"), flag(&target(), "/target")];
    // One directory for each registry. Its name depends on the configuration of the machine.
    let sources = home.join("registry/src");
    for entry in fs::read_dir(&sources).with_context(|| format!("read {}", sources.display()))? {
        flags.push(flag(&entry?.path(), "/crates"));
    }
    Ok(flags)
}
