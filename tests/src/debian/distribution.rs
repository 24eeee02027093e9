//! Root file systems of Debian's releases, made by debootstrap. They are kept below the target directory for later runs.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::Context as _;

use super::succeeded;
use crate::terraform;

/// The root file system of a release, such as `bookworm`, with systemd, and a plugin for host names.
pub fn root(release: &str) -> anyhow::Result<PathBuf> {
    let programs = terraform::built("xtask")?;
    let target = programs.ancestors().nth(2).context("the target directory")?;
    let root = target.join("debian").join(release);
    if root.is_dir() {
        return Ok(root);
    }
    if terraform::on_path("debootstrap").is_none() {
        let install = [
            "install",
            "--yes",
            "--no-install-recommends",
            "--option=DPkg::Lock::Timeout=120",
            "debootstrap",
        ];
        let apt = || {
            let mut apt = Command::new("apt-get");
            apt.args(install).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
            apt
        };
        if succeeded(&mut apt()).is_err() {
            succeeded(Command::new("apt-get").arg("update"))?;
            succeeded(&mut apt())?;
        }
    }
    // Complete roots only: an interrupted run must not leave one that looks like it.
    let unfinished = root.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).context("remove an unfinished root")?;
    }
    fs::create_dir_all(&unfinished).context("make a folder for a root")?;
    let mut command = Command::new("debootstrap");
    // No recommended packages; the mirror is that of the machine's debootstrap.
    command.args(["--variant=minbase", "--include=systemd,libnss-myhostname", release]).arg(&unfinished);
    succeeded(command.stdin(Stdio::null()))?;
    fs::rename(&unfinished, &root).context("move the root to its final path")?;
    Ok(root)
}
