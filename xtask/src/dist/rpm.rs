//! The wrapper's package for distributions with RPM, built by `rpmbuild` (Debian's package `rpm`).
//!
//! A crate that writes the format would bring 45 others, which every fresh checkout would compile for each command of xtask.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{Release, read, wrapper, write};
use crate::{setup, steps::output};

const PLACES: wrapper::Places = wrapper::Places {
    zsh: "usr/share/zsh/site-functions/_grit-wrapper",
    licence: ("LICENSE", "usr/share/licenses/grit-wrapper/LICENSE"),
};

/// The package's own directories.
const FOLDERS: [&str; 6] = [
    "/usr/lib/systemd/system/gitlab-runner.service.d",
    "/usr/share/doc/grit-wrapper",
    "/usr/share/grit-wrapper",
    "/usr/share/grit-wrapper/prometheus",
    "/usr/share/grit-wrapper/sshd_config.d",
    "/usr/share/licenses/grit-wrapper",
];

/// Before the long build: the program that builds the package is on PATH, or is installed if `set_up`.
pub(super) fn require(set_up: bool) -> anyhow::Result<()> {
    if setup::find("rpmbuild").is_some() {
        return Ok(());
    }
    anyhow::ensure!(
        set_up,
        "rpmbuild is missing, and --no-setup installs nothing: install the package rpm, or leave out the .rpm with --only provider \
         --only tar --only deb --only sbom"
    );
    println!(
        "rpmbuild is missing: apt-get now installs the Debian package rpm and the packages that it needs (--no-setup prevents this)"
    );
    setup::install("rpmbuild", "rpm")
}

pub(super) fn create(release: &Release) -> anyhow::Result<PathBuf> {
    let work = release.work.join("rpm");
    let tree = work.join("tree");
    wrapper::lay_out(release, &tree, &PLACES)?;
    let spec = work.join("grit-wrapper.spec");
    write(&spec, self::spec(release, &tree)?, 0o644)?;

    let text = |path: &Path| path.to_str().map(str::to_owned).context("the path is not valid UTF-8");
    let unfinished = std::path::absolute(&release.out)?.join("unfinished");
    let mut command = Command::new("rpmbuild");
    // No configuration of the user or the machine changes the package, and every supported rpm reads gzip.
    for (name, value) in [
        ("_topdir", text(&std::path::absolute(&work)?)?),
        ("_rpmdir", text(&std::path::absolute(&release.out)?)?),
        ("_rpmfilename", "unfinished".to_owned()),
        ("_dbpath", text(&std::path::absolute(work.join("database"))?)?),
        ("_buildhost", "reproducible".to_owned()),
        ("_binary_payload", format!("w{}.gzdio", release.level)),
        ("_build_id_links", "none".to_owned()),
        ("_os_install_post", "%{nil}".to_owned()),
        ("__os_install_post", "%{nil}".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        ("source_date_epoch_from_changelog", "0".to_owned()),
    ] {
        command.arg("--define").arg(format!("{name} {value}"));
    }
    command.arg("--buildroot").arg(std::path::absolute(&tree)?);
    command.args(["--nodeps", "-bb", "--quiet", "--noclean"]).arg(&spec);
    output(command.env("SOURCE_DATE_EPOCH", release.epoch.to_string()).env("HOME", &work))?;
    // As for the Debian package, without `~`.
    let (version, architecture) = (&release.version, std::env::consts::ARCH);
    release.rename(&unfinished, &format!("grit-wrapper-{version}-1.{architecture}.rpm"))
}

fn spec(release: &Release, tree: &Path) -> anyhow::Result<String> {
    let mut files: String = FOLDERS.iter().map(|folder| format!("%dir {folder}\n")).collect();
    for path in wrapper::files(tree)? {
        let path = path.to_string_lossy();
        let kind = match path.split('/').next() {
            Some("etc") => "%config(noreplace) ",
            _ => "",
        };
        files += &format!("{kind}\"/{path}\"\n");
    }
    let mut text = read("wrapper/packaging/rpm/grit-wrapper.spec.in")?
        .replace("@VERSION@", &wrapper::package_version(&release.version))
        .replace("@FILES@", files.trim_end());
    for name in ["post", "preun", "postun"] {
        let script = script(&format!("wrapper/packaging/rpm/{name}"))?;
        // In a spec file `%` begins a macro.
        text = text
            .replace(&format!("@{}@", name.to_uppercase()), script.trim_end().replace('%', "%%").as_str());
    }
    Ok(text)
}

/// A script of a package, with the functions that the scripts of all packages share.
pub(super) fn script(path: &str) -> anyhow::Result<String> {
    let functions = read("wrapper/packaging/functions.sh")?;
    Ok(read(path)?.replace("@FUNCTIONS@\n", &functions))
}
