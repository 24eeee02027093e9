//! A root directory with its own package database, as for building a machine image. The machine itself is not changed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::Context as _;
use rustix::process::geteuid;

/// A directory that dpkg uses as `/`. Maintainer scripts run outside of it, with `DPKG_ROOT`.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("root-").tempdir()?;
        let database = folder.path().join("var/lib/dpkg");
        for part in ["info", "triggers", "updates"] {
            fs::create_dir_all(database.join(part)).context("make a package database")?;
        }
        fs::write(database.join("status"), "").context("make a package database")?;
        Ok(Self { folder })
    }

    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    /// Runs `dpkg` on this directory as root; an ordinary user gets root in a user namespace.
    pub fn dpkg(&self, action: &str, operand: &Path) -> anyhow::Result<Output> {
        let mut command = match geteuid().is_root() {
            true => Command::new("dpkg"),
            false => {
                let mut command = Command::new("unshare");
                command.args(["--map-root-user", "dpkg"]);
                command
            }
        };
        // The dependencies of the package are those of the machine.
        command.args(["--force-depends", "--force-script-chrootless"]);
        command.arg("--root").arg(self.folder.path()).arg("--log").arg(self.path("dpkg.log"));
        // The directories of system binaries, which are not on every user's PATH.
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.arg(action).arg(operand).output().context("start dpkg")
    }

    /// The package's status, such as `install ok installed`; empty if it is unknown.
    pub fn status(&self) -> anyhow::Result<String> {
        let text = fs::read_to_string(self.path("var/lib/dpkg/status")).context("read the database")?;
        let line = text.lines().find_map(|line| line.strip_prefix("Status: "));
        Ok(line.unwrap_or_default().to_owned())
    }
}
