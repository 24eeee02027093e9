//! The requirements of the tests, and their installation.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::bail;

use crate::steps;

/// The first of Terraform and OpenTofu on PATH.
pub(crate) fn terraform() -> anyhow::Result<PathBuf> {
    match find("terraform").or_else(|| find("tofu")) {
        Some(path) => Ok(path),
        None => bail!(
            "neither terraform nor tofu is on PATH: install one (https://developer.hashicorp.com/terraform/install, https://opentofu.org)"
        ),
    }
}

/// Checks all requirements of the tests. Installs openssh-server, iproute2, systemd, python3-grpcio, rpm, gnupg, nodejs,
/// npm, rsync, runc, podman, dumb-init and python3-yaml, and downloads Prometheus, cloud-init and gitlab-ci-local, if they are missing and installation is
/// permitted. A missing requirement is an error; with `allow_missing`, optional ones are returned as a list.
pub(crate) fn for_tests(allow_missing: bool) -> anyhow::Result<Vec<String>> {
    let terraform = terraform()?;
    println!("using {}", terraform.display());
    if find("setsid").is_none() {
        bail!("setsid is not on PATH: install util-linux");
    }
    if sshd().is_none() {
        install("sshd", "openssh-server")?;
    }
    match sshd() {
        Some(path) => println!("using {}", path.display()),
        None => bail!("openssh-server was installed, but sshd is neither in PATH nor in /usr/sbin"),
    }
    let mut missing = Vec::new();
    let mut optional = |outcome: anyhow::Result<()>| match outcome {
        Err(error) if allow_missing => {
            missing.push(format!("{error:#}"));
            Ok(())
        }
        other => other,
    };
    // For systemd-analyze, and boots in namespaces; the package does not make it this machine's init.
    if find("systemd-analyze").is_none() {
        optional(install("systemd-analyze", "systemd"))?;
    }
    if !has_module("grpc") {
        optional(install("gRPC for /usr/bin/python3", "python3-grpcio"))?;
    }
    optional(prometheus())?;
    optional(cloud_init())?;
    if ip().is_none() {
        optional(install("ip", "iproute2"))?;
    }
    for (program, package) in [("rpmbuild", "rpm"), ("gpg", "gnupg"), ("python3", "python3")] {
        if find(program).is_none() {
            optional(install(program, package))?;
        }
    }
    optional(gitlab_ci_local())?;
    // runc first: otherwise apt chooses another runtime for podman.
    for program in ["runc", "podman", "dumb-init"] {
        if find_with_sbin(program).is_none() {
            optional(install(program, program))?;
        }
    }
    if !has_module("yaml") {
        optional(install("YAML for /usr/bin/python3", "python3-yaml"))?;
    }
    Ok(missing)
}

/// Installs gitlab-ci-local below the target directory, in the versions of `tests/gitlab-ci-local/package-lock.json`.
fn gitlab_ci_local() -> anyhow::Result<()> {
    for (program, package) in [("node", "nodejs"), ("npm", "npm"), ("rsync", "rsync"), ("git", "git")] {
        if find(program).is_none() {
            install(program, package)?;
        }
    }
    let folder = steps::target().join("gitlab-ci-local");
    let sources = steps::root().join("tests/gitlab-ci-local");
    let lock = "package-lock.json";
    let wanted = std::fs::read(sources.join(lock))?;
    let installed = folder.join("node_modules").join(".installed.json");
    if std::fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    println!("gitlab-ci-local is missing: installing it below {}", folder.display());
    std::fs::create_dir_all(&folder)?;
    for name in ["package.json", lock] {
        std::fs::copy(sources.join(name), folder.join(name))?;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    steps::run(command.current_dir(&folder))?;
    std::fs::write(installed, wanted)?;
    Ok(())
}

/// Unpacks Debian's Prometheus (one download of 19 MB) below the target directory, where the wrapper's tests find it. It is not
/// installed, because tests must not leave a service on a machine.
fn prometheus() -> anyhow::Result<()> {
    let folder = steps::target().join("prometheus");
    let is_there = |name| find(name).is_some() || folder.join("usr/bin").join(name).is_file();
    if is_there("prometheus") && is_there("promtool") { Ok(()) } else { unpack(&["prometheus"], &folder) }
}

/// The Python modules of cloud-init's `schema` command and of its stages, which Debian's minimal systems do not have.
const CLOUD_INIT: [&str; 17] = [
    "cloud-init",
    "python3-attr",
    "python3-certifi",
    "python3-chardet",
    "python3-charset-normalizer",
    "python3-configobj",
    "python3-idna",
    "python3-jinja2",
    "python3-json-pointer",
    "python3-jsonpatch",
    "python3-jsonschema",
    "python3-markupsafe",
    "python3-oauthlib",
    "python3-pyrsistent",
    "python3-requests",
    "python3-urllib3",
    "python3-yaml",
];

/// Unpacks Debian's cloud-init. Installed, it would run at the next boot of this machine.
fn cloud_init() -> anyhow::Result<()> {
    let folder = steps::target().join("cloud-init");
    if folder.join("usr/bin/cloud-init").is_file() { Ok(()) } else { unpack(&CLOUD_INIT, &folder) }
}

/// Downloads packages of Debian, and unpacks them without installing them.
fn unpack(packages: &[&str], folder: &Path) -> anyhow::Result<()> {
    let name = packages.first().copied().unwrap_or_default();
    let (Some(apt), Some(unpack)) = (find("apt-get"), find("dpkg-deb")) else {
        bail!("{name} is missing: install {name} with this system's package manager");
    };
    println!("{name} is missing: unpacking Debian's package below {}", folder.display());
    std::fs::create_dir_all(folder)?;
    let download = || {
        let mut command = Command::new(&apt);
        // As the current user: apt's own user could not write there.
        command.args(["download", "--option", "APT::Sandbox::User=root"]).args(packages).current_dir(folder);
        command
    };
    // Every user can download; only root can update the package lists.
    if !download().stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        if !is_root() {
            bail!("cannot download {name}: run `sudo apt-get install {name}`, or run this command as root");
        }
        steps::run(Command::new(&apt).arg("update"))?;
        steps::run(&mut download())?;
    }
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            steps::run(Command::new(&unpack).arg("--extract").arg(&path).arg(folder))?;
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Installs the package of a program.
pub(crate) fn install(program: &str, package: &str) -> anyhow::Result<()> {
    let Some(apt) = find("apt-get") else {
        bail!("{program} is missing: install {package} with this system's package manager");
    };
    if !is_root() {
        bail!("{program} is missing: run `sudo apt-get install {package}`, or run this command as root");
    }
    println!("{program} is missing: installing {package}");
    let install = || {
        let mut command = Command::new(&apt);
        command
            // A machine that has just started may run apt itself.
            .args([
                "install",
                "--yes",
                "--no-install-recommends",
                "--option",
                "DPkg::Lock::Timeout=120",
                package,
            ])
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    // Without package lists the first attempt fails; a machine with lists does not wait for an update.
    if !install().stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        steps::run(Command::new(&apt).arg("update"))?;
        steps::run(&mut install())?;
    }
    Ok(())
}

/// A gRPC client of another implementation.
fn has_module(name: &str) -> bool {
    let mut import = Command::new("/usr/bin/python3");
    import.args(["-c", &format!("import {name}")]).stderr(Stdio::null());
    import.status().is_ok_and(|status| status.success())
}

fn sshd() -> Option<PathBuf> {
    find_with_sbin("sshd")
}

fn ip() -> Option<PathBuf> {
    find_with_sbin("ip")
}

/// Includes the directories of system binaries, which are not on every user's PATH.
fn find_with_sbin(name: &str) -> Option<PathBuf> {
    find(name).or_else(|| {
        let folders = ["/usr/sbin", "/usr/local/sbin", "/sbin"].iter();
        folders.map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
    })
}

pub(crate) fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Whether apt-get is permitted: only root can write its lists.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    let ours = std::fs::metadata("/proc/self").map(|own| own.uid());
    ours.is_ok_and(|uid| uid == 0) && Path::new("/var/lib/dpkg").is_dir()
}
