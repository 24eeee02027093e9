//! The wrapper's Debian package, and systems to install it on.

pub mod booted;
pub mod machine;
pub mod scratch;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, bail};

use crate::terraform;

/// The timestamp in every package of the tests.
pub const EPOCH: &str = "1700000000";

/// Builds the package with the real command, `cargo xtask package`, and returns its path.
pub fn package(version: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let program = terraform::built("grit-wrapper")?;
    let mut command = Command::new(terraform::built("xtask")?);
    command.args(["package", "--quick", "--version", version]).env("SOURCE_DATE_EPOCH", EPOCH);
    command.arg("--program").arg(program).arg("--output").arg(folder);
    Ok(PathBuf::from(succeeded(&mut command)?.trim()))
}

/// The stdout of a command; if the command failed, an error with its whole output.
pub fn succeeded(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, both(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Stdout and stderr of a command.
pub fn both(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// Whether packages can be built and installed here; otherwise the reason.
pub fn is_debian() -> anyhow::Result<()> {
    for program in ["dpkg", "dpkg-deb", "deb-systemd-helper", "systemd-sysusers"] {
        if terraform::on_path(program).is_none() {
            bail!("there is no {program} on PATH");
        }
    }
    Ok(())
}
