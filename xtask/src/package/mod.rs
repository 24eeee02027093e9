//! `cargo xtask package`: the Debian package of the wrapper, built by `dpkg-deb` from `wrapper/packaging/`.
//!
//! The build is reproducible: owners, modes and times do not depend on the user and time of the build. The time is
//! `SOURCE_DATE_EPOCH`, or that of the last commit.

mod contents;
mod elf;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};

use self::{contents::Contents, elf::Elf};
use crate::{
    release,
    steps::{cargo, output, programs, root, run as execute},
};

const USAGE: &str = "cargo xtask package [--program PATH] [--version VERSION] [--output DIRECTORY] [--quick]";

struct Options {
    /// A wrapper binary that exists.
    program: Option<PathBuf>,
    version: String,
    output: PathBuf,
    /// The debug build, with fast compression.
    quick: bool,
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(arguments)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build(options.quick)?,
    };
    let elf = Elf::read(&program)?;
    let work = options.output.join("grit-wrapper.work");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    }
    let epoch = epoch()?;
    let contents = Contents { program: &program, elf: &elf, version: &options.version, epoch: &epoch };
    contents.lay_out(&work)?;

    let name = format!("grit-wrapper_{}_{}.deb", options.version, elf.architecture);
    let package = options.output.join(name);
    // The package appears atomically.
    let unfinished = options.output.join("grit-wrapper.unfinished");
    let mut command = Command::new("dpkg-deb");
    // Every supported dpkg reads xz.
    command.args(if options.quick { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z6"] });
    command.args(["--root-owner-group", "--build"]).args([&work, &unfinished]);
    output(command.env("SOURCE_DATE_EPOCH", &epoch))?;
    fs::rename(&unfinished, &package)
        .with_context(|| format!("move {} to its final path", package.display()))?;
    fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    println!("{}", package.display());
    Ok(())
}

impl Options {
    fn parse(arguments: &[String]) -> anyhow::Result<Options> {
        let mut options = Options {
            program: None,
            version: debian_version(env!("CARGO_PKG_VERSION")),
            output: programs("package"),
            quick: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} requires a value: {USAGE}"));
            match word.as_str() {
                "--program" => options.program = Some(value()?.into()),
                "--version" => options.version = debian_version(value()?),
                "--output" => options.output = value()?.into(),
                "--quick" => options.quick = true,
                other => bail!("unknown option {other}: {USAGE}"),
            }
        }
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".+~".contains(&byte);
        let version = &options.version;
        ensure!(
            version.starts_with(|first: char| first.is_ascii_digit()) && version.bytes().all(is_part),
            "{version:?} is not a valid version of a Debian package without revision"
        );
        Ok(options)
    }
}

/// A pre-release must sort before its release: `~` does, `-` does not.
fn debian_version(version: &str) -> String {
    version.replace('-', "~")
}

fn build(quick: bool) -> anyhow::Result<PathBuf> {
    const PROGRAM: &str = "grit-wrapper";
    if !quick {
        return Ok(release::build(PROGRAM, &[PROGRAM])?.join(PROGRAM));
    }
    execute(&mut cargo(&["build", "--package", PROGRAM, "--bins"]))?;
    Ok(programs("debug").join(PROGRAM))
}

/// The time of all files in the package, in seconds since 1970.
fn epoch() -> anyhow::Result<String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(root());
    output(&mut git).context("no git checkout for the build time: set SOURCE_DATE_EPOCH")
}

/// Writes a file with these permissions, with any umask, and creates its directories.
fn write(path: &Path, text: impl AsRef<[u8]>, mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}
