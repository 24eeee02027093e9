//! The wrapper's packages: their contents, and install, upgrade, removal and purge of the Debian package in a root directory.
//! Its effects on a running system are in `systemd_upgrade.rs` and `systemd_stop.rs`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grit_tests::{
    debian::{self, both, scratch::Scratch, succeeded},
    dist,
};

/// Whether dpkg is installed; without it the test is reported as not covered.
fn can_package() -> bool {
    let possible = debian::is_debian();
    if let Err(why) = &possible {
        grit_testkit::not_covered("the Debian package", &format!("{why:#}"));
    }
    possible.is_ok()
}

fn package(version: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let package = debian::package(version, folder.path()).unwrap();
    (folder, package)
}

#[test]
fn deb_contents_are_complete() {
    if !can_package() {
        return;
    }
    let (_folder, package) = package("1.0.0-rc.1");
    let deb = |words: &[&str]| succeeded(Command::new("dpkg-deb").args(words).arg(&package)).unwrap();
    let field = |name: &str| {
        succeeded(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)).unwrap().trim().to_owned()
    };
    assert_eq!(field("Version"), "1.0.0~rc.1");
    assert_eq!(
        field("Architecture"),
        succeeded(Command::new("dpkg").arg("--print-architecture")).unwrap().trim()
    );
    // The programs of a release are static.
    assert_eq!(field("Depends"), "systemd | systemd-standalone-sysusers | systemd-sysusers");

    // Owner, mode, time and name; the size of a program varies.
    let listing = deb(&["--contents"]);
    let files = listing.lines().map(|line| {
        let mut columns = line.split_whitespace();
        let [mode, owner, _size, day, time, name] = [(); 6].map(|()| columns.next().unwrap());
        assert_eq!((owner, day, time), ("root/root", "2023-11-14", "22:13"), "{line}");
        format!("{mode} {name}")
    });
    insta::assert_snapshot!("package_contents", files.collect::<Vec<_>>().join("\n"));
}

/// The same files as in the Debian package, where RPM has no other place for them.
#[test]
fn rpm_contents_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = succeeded(&mut dist::part("1.0.0-rc.1", folder.path(), "rpm").unwrap()).unwrap();
    let rpm = |words: &[&str]| {
        let mut rpm = Command::new("rpm");
        succeeded(
            rpm.arg("--dbpath")
                .arg(folder.path())
                .arg("--query")
                .args(words)
                .arg("--package")
                .arg(path.trim()),
        )
        .unwrap()
    };
    let format = "--queryformat=%{NAME} %{VERSION} %{RELEASE} %{LICENSE} %{BUILDTIME} %{BUILDHOST} %{PAYLOADCOMPRESSOR}";
    let time = dist::EPOCH;
    assert_eq!(rpm(&[format]), format!("grit-wrapper 1.0.0~rc.1 1 Apache-2.0 {time} reproducible gzip"));
    // Mode, owner, and whether the file is a setting that an upgrade keeps.
    insta::assert_snapshot!(
        "rpm_contents",
        rpm(&[
            "--queryformat=[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEMTIMES} %{FILENAMES} %{FILEFLAGS:fflags}\\n]"
        ])
    );
    let scripts = rpm(&["--scripts"]);
    assert!(!scripts.contains("@FUNCTIONS@") && scripts.contains("restart_wrappers"), "{scripts}");
}

/// The package's own unit file replaces that of GitLab's package while an upgrade replaces the latter. It cannot be enabled.
#[test]
fn fallback_unit_is_that_of_gitlabs_package() {
    let settings = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    let of_gitlab = include_str!("../../src/debian/gitlab-runner.service");
    let (of_gitlab, install) = of_gitlab.split_once("\n[Install]\n").unwrap();
    assert_eq!(install, "WantedBy=multi-user.target\n");
    let ours = include_str!("../../../wrapper/packaging/systemd/gitlab-runner.service");
    assert_eq!(settings(ours), settings(of_gitlab));
}

#[test]
fn deb_installs_and_removes_in_dpkg_root() {
    if !can_package() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let dpkg = |action: &str, operand: &Path| {
        let output = scratch.dpkg(action, operand).unwrap();
        assert!(output.status.success(), "dpkg {action}: {}", both(&output));
    };
    let enabled = scratch.path("etc/systemd/system/multi-user.target.wants/grit-wrapper.service");
    let settings = scratch.path("etc/default/grit-wrapper");
    let program = scratch.path("usr/bin/grit-wrapper");

    let (_first_folder, first) = package("1.0.0");
    dpkg("--install", &first);
    assert_eq!(scratch.status().unwrap(), "install ok installed");
    let printed = succeeded(Command::new(&program).arg("--version")).unwrap();
    assert!(printed.starts_with("grit-wrapper "), "{printed}");
    assert!(fs::read_to_string(scratch.path("etc/group")).unwrap().contains("grit-wrapper:"));
    assert!(fs::symlink_metadata(&enabled).is_err(), "whether it starts at boot is not for a package to say");

    // The administrator's settings are kept.
    fs::create_dir_all(enabled.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/usr/lib/systemd/system/grit-wrapper.service", &enabled).unwrap();
    fs::write(&settings, "GRIT_WRAPPER_LOG_LEVEL=debug\n").unwrap();
    let (_second_folder, second) = package("2.0.0");
    dpkg("--install", &second);
    assert_eq!(scratch.status().unwrap(), "install ok installed");
    assert!(fs::symlink_metadata(&enabled).is_ok());
    assert_eq!(fs::read_to_string(&settings).unwrap(), "GRIT_WRAPPER_LOG_LEVEL=debug\n");

    dpkg("--remove", Path::new("grit-wrapper"));
    assert_eq!(scratch.status().unwrap(), "deinstall ok config-files");
    assert!(!program.exists());
    assert!(settings.exists());

    dpkg("--purge", Path::new("grit-wrapper"));
    assert_eq!(scratch.status().unwrap(), "");
    assert!(!settings.exists());
    assert!(fs::symlink_metadata(&enabled).is_err(), "a link to a unit that is gone");
}
