//! The wrapper's package for Debian and Ubuntu, built by `dpkg-deb`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{Release, program, read, rpm::script, wrapper, write};
use crate::steps::output;

const PLACES: wrapper::Places = wrapper::Places {
    zsh: "usr/share/zsh/vendor-completions/_grit-wrapper",
    licence: ("wrapper/packaging/deb/copyright", "usr/share/doc/grit-wrapper/copyright"),
};

pub(super) fn create(release: &Release) -> anyhow::Result<PathBuf> {
    let tree = release.work.join("deb");
    wrapper::lay_out(release, &tree, &PLACES)?;
    let installed = wrapper::files(&tree)?;
    let control = tree.join("DEBIAN");
    write(&control.join("control"), self::control(release, &tree, &installed)?, 0o644)?;
    write(&control.join("conffiles"), read("wrapper/packaging/deb/conffiles")?, 0o644)?;
    for name in ["postinst", "prerm", "postrm"] {
        write(&control.join(name), script(&format!("wrapper/packaging/deb/{name}"))?, 0o755)?;
    }
    let sums = output(Command::new("md5sum").arg("--").args(&installed).current_dir(&tree))?;
    write(&control.join("md5sums"), sums + "\n", 0o644)?;
    wrapper::folders_for_all(&tree)?;

    let unfinished = release.out.join("unfinished");
    let mut command = Command::new("dpkg-deb");
    // Every supported dpkg reads xz.
    let compression = if release.level == 1 { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z6"] };
    command.args(compression).args(["--root-owner-group", "--build"]).args([&tree, &unfinished]);
    output(command.env("SOURCE_DATE_EPOCH", release.epoch.to_string()))?;
    // GitHub replaces the `~` of a package version in the name of a release's file, and the name in SHA256SUMS would be another one.
    release.rename(&unfinished, &format!("grit-wrapper_{}_{}.deb", release.version, program::architecture()?))
}

fn control(release: &Release, tree: &Path, installed: &[PathBuf]) -> anyhow::Result<String> {
    // As in dpkg-gencontrol: each file is rounded up to KiB.
    let size = |path: &PathBuf| fs::metadata(tree.join(path)).map(|found| found.len().div_ceil(1024));
    let sizes: Result<Vec<u64>, _> = installed.iter().map(size).collect();
    let size: u64 = sizes.context("list the files")?.iter().sum();
    Ok(read("wrapper/packaging/deb/control.in")?
        .replace("@VERSION@", &wrapper::package_version(&release.version))
        .replace("@ARCHITECTURE@", program::architecture()?)
        .replace("@INSTALLED_SIZE@", &size.to_string()))
}
