//! Programs as they are released: optimized, stripped and statically linked, so that they run on every Linux of this architecture.

use std::{path::PathBuf, process::Command};

use anyhow::Context as _;

use crate::steps::{cargo, output, run as execute, target};

/// Builds programs of one package, and returns their directory.
///
/// One package at a time: a build of all packages would unify their features.
pub(crate) fn build(package: &str, programs: &[&str]) -> anyhow::Result<PathBuf> {
    let host = host()?;
    let mut command = cargo(&["build", "--release", "--package", package]);
    command.args(programs.iter().flat_map(|program| ["--bin", program]));
    // With `--target`, the flags do not apply to procedural macros, which cannot be linked statically.
    command.args(["--target", &host]);
    command.args(["--config", &format!("target.{host}.rustflags=[\"-Ctarget-feature=+crt-static\"]")]);
    execute(&mut command)?;
    Ok(target().join(host).join("release"))
}

/// The target triple of this machine.
fn host() -> anyhow::Result<String> {
    let text = output(Command::new("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` does not print its host")
}
