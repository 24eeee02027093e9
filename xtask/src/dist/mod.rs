//! `cargo xtask dist`: everything that a release consists of, for the platform of this machine.
//!
//! Reproducible: names, owners, modes, order and times do not depend on the user, directory and time of the build. The time is
//! `SOURCE_DATE_EPOCH`, or that of the last commit.

mod archive;
mod date;
mod deb;
mod mirror;
mod options;
mod program;
mod rpm;
mod sbom;
mod sums;
mod wrapper;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use self::{
    archive::File,
    options::{Kind, Options},
};
use crate::{
    release,
    steps::{output, root},
};

const PROVIDER: &str = "terraform-provider-grit";
const WRAPPER: &str = "grit-wrapper";

/// The version of Terraform's plugin protocol, for registries.
const MANIFEST: &str =
    "{\n  \"version\": 1,\n  \"metadata\": {\n    \"protocol_versions\": [\"6.0\"]\n  }\n}\n";

/// What all parts of a release share.
struct Release {
    version: String,
    /// Seconds since 1970, for all files.
    epoch: u64,
    /// The compression level, 1 to 9.
    level: u8,
    out: PathBuf,
    /// The stripped programs; removed at the end.
    work: PathBuf,
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(arguments)?;
    if options.kinds.contains(&Kind::Rpm) {
        rpm::require(options.set_up)?;
    }
    let release = Release {
        version: options.version.clone(),
        epoch: epoch()?,
        level: if options.quick { 1 } else { 9 },
        work: options.out.join("work"),
        out: options.out.clone(),
    };
    fs::create_dir_all(&release.out).with_context(|| format!("create {}", release.out.display()))?;
    release.clear_work()?;
    for package in [PROVIDER, WRAPPER] {
        if options.kinds.iter().any(|kind| kind.package() == package) {
            let built = match &options.programs {
                Some(folder) => folder.join(package),
                None => release.build(package)?,
            };
            program::strip(&built, &release.program(package))?;
        }
    }
    if options.kinds.iter().any(|kind| matches!(kind, Kind::Tar | Kind::Deb | Kind::Rpm)) {
        wrapper::write_documents(&release, options.programs.is_none())?;
    }
    for kind in &options.kinds {
        println!("{}", release.create(*kind)?.display());
    }
    release.clear_work()?;
    if options.is_complete() {
        sums::write(&release)?;
    }
    match &options.mirror {
        Some(mirror) => mirror::write(&release, mirror),
        None => Ok(()),
    }
}

impl Release {
    /// Builds a program, and checks that it is the one that will be released: static, and of this version.
    fn build(&self, package: &str) -> anyhow::Result<PathBuf> {
        let built = release::build(&[package], &[package])?.join(package);
        program::check_static(&built)?;
        let printed = output(Command::new(&built).arg("--version"))?;
        let expected = format!("{package} {} ({})", self.version, release::revision()?);
        anyhow::ensure!(printed == expected, "{} prints `{printed}`, not `{expected}`", built.display());
        Ok(built)
    }

    fn create(&self, kind: Kind) -> anyhow::Result<PathBuf> {
        match kind {
            Kind::Provider => self.provider(),
            Kind::Tar => wrapper::tar(self),
            Kind::Deb => deb::create(self),
            Kind::Rpm => rpm::create(self),
            Kind::ProviderSbom => self.sbom(PROVIDER),
            Kind::WrapperSbom => self.sbom(WRAPPER),
        }
    }

    /// The archive that Terraform's registries serve. The name of the program must contain the version.
    fn provider(&self) -> anyhow::Result<PathBuf> {
        let program = format!("{PROVIDER}_v{}", self.version);
        let files = [
            File { name: "LICENSE".to_owned(), mode: 0o644, bytes: read("LICENSE")?.into_bytes() },
            File { name: program, mode: 0o755, bytes: self.stripped(PROVIDER)? },
        ];
        let bytes = archive::zip(&files, self.epoch, self.level)?;
        self.finish(&format!("{PROVIDER}_{}_{}.zip", self.version, program::platform()?), &bytes)
    }

    fn sbom(&self, package: &str) -> anyhow::Result<PathBuf> {
        let name = format!("{package}_{}_{}_sbom.spdx.json", self.version, program::platform()?);
        self.finish(&name, sbom::of(package, &self.version, self.epoch)?.as_bytes())
    }

    /// The path of a stripped program.
    fn program(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    fn stripped(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        fs::read(self.program(name)).with_context(|| format!("read {name}"))
    }

    /// Writes a file of the release. The file appears atomically.
    fn finish(&self, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let unfinished = self.out.join("unfinished");
        write(&unfinished, bytes, 0o644)?;
        self.rename(&unfinished, name)
    }

    fn rename(&self, unfinished: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.out.join(name);
        fs::rename(unfinished, &path)
            .with_context(|| format!("move {} to its final path", path.display()))?;
        Ok(path)
    }

    fn clear_work(&self) -> anyhow::Result<()> {
        match fs::remove_dir_all(&self.work) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.work.display()))
            }
            _ => Ok(()),
        }
    }
}

/// The time of all files in the release, in seconds since 1970.
fn epoch() -> anyhow::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => epoch,
        Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))
            .context("no git checkout for the build time: set SOURCE_DATE_EPOCH")?,
    };
    text.parse().with_context(|| format!("{text:?} is not a time in seconds"))
}

/// The text of a file of this repository.
fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("read {path}"))
}

/// Writes a file with these permissions, with any umask, and creates its directories.
fn write(path: &Path, text: impl AsRef<[u8]>, mode: u32) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}
