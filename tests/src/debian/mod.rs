//! The wrapper's packages, and systems to install them on.

pub mod booted;
pub mod distribution;
pub mod machine;
pub mod scratch;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, bail};

use crate::{dist, terraform};

/// Builds the Debian package, and returns its path.
pub fn package(version: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(succeeded(&mut dist::part(version, folder, "deb")?)?.trim()))
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
