//! A root folder with a package database of its own, as when the image of a machine is built. The machine around it is not touched.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::Context as _;
use rustix::process::geteuid;

/// A folder that dpkg takes for `/`. Nothing runs in it: maintainer scripts run outside, with `DPKG_ROOT`.
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

    /// Runs `dpkg` on this root; as root, which an ordinary user is in a user namespace of their own.
    pub fn dpkg(&self, action: &str, operand: &Path) -> anyhow::Result<Output> {
        let mut command = match geteuid().is_root() {
            true => Command::new("dpkg"),
            false => {
                let mut command = Command::new("unshare");
                command.args(["--map-root-user", "dpkg"]);
                command
            }
        };
        // The packages that ours depends on are those of the machine outside.
        command.args(["--force-depends", "--force-script-chrootless"]);
        command.arg("--root").arg(self.folder.path()).arg("--log").arg(self.path("dpkg.log"));
        // Where administrators' programs are, which are not on everybody's PATH.
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.arg(action).arg(operand).output().context("start dpkg")
    }

    /// What the database says of our package, such as `install ok installed`; empty when it knows none.
    pub fn status(&self) -> anyhow::Result<String> {
        let text = fs::read_to_string(self.path("var/lib/dpkg/status")).context("read the database")?;
        let line = text.lines().find_map(|line| line.strip_prefix("Status: "));
        Ok(line.unwrap_or_default().to_owned())
    }
}
