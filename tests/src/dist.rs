//! The files of a release, created by the real command, `cargo xtask dist`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::terraform;

/// The timestamp of all files in releases of the tests.
pub const EPOCH: &str = "1700000000";

/// The revision in releases of the tests, so that changed files of the checkout have no effect.
pub const REVISION: &str = "0123456789ab";

/// The platform of this machine in the names of files.
pub const PLATFORM: &str = if cfg!(target_arch = "aarch64") { "linux_arm64" } else { "linux_amd64" };

/// Set by `cargo xtask test --nightly`: the directory of the programs of a release build.
const PROGRAMS: &str = "GRIT_TEST_RELEASE";

/// The directory of programs from a release build; `None` if this run has only those of the debug build.
#[must_use]
pub fn release_programs() -> Option<PathBuf> {
    std::env::var_os(PROGRAMS).map(PathBuf::from)
}

/// A command that creates a release of this version in `out`.
pub fn command(version: &str, out: &Path) -> anyhow::Result<Command> {
    let xtask = terraform::built("xtask")?;
    let programs = release_programs().or_else(|| xtask.parent().map(Path::to_owned)).unwrap_or_default();
    let mut command = Command::new(&xtask);
    command.args(["dist", "--quick", "--version", version, "--out"]).arg(out);
    command.arg("--programs").arg(programs).env("SOURCE_DATE_EPOCH", EPOCH).env("GRIT_REVISION", REVISION);
    Ok(command)
}

/// The same for one kind of file. The command prints the path of the file.
pub fn part(version: &str, out: &Path, kind: &str) -> anyhow::Result<Command> {
    let mut command = command(version, out)?;
    command.args(["--only", kind]);
    Ok(command)
}
