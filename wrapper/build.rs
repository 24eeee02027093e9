//! Links the unwinder statically, so that the program needs no shared library except libc, and adds the revision to release builds.
//!
//! Rust's standard library asks the linker for `-lgcc_s`, which is a separate shared library on GNU systems: another requirement for a host,
//! and some hundred kilobytes of mapped memory in an idle wrapper. A linker script of that name, which the linker finds first, selects the
//! static part of the same library. If this part is not installed, or with another libc, nothing is changed.

#[path = "build/revision.rs"]
mod revision;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/revision.rs");
    write_revision();
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let native = env::var("HOST") == env::var("TARGET");
    if !native || !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "gnu") || !has_archive()
    {
        return Ok(());
    }
    let Some(folder) = env::var_os("OUT_DIR").map(PathBuf::from) else { return Ok(()) };
    fs::write(folder.join("libgcc_s.so"), "GROUP ( -lgcc_eh -lgcc )\n")?;
    println!("cargo::rustc-link-search=native={}", folder.display());
    Ok(())
}

/// Sets `GRIT_REVISION` for the compiler, unless it is set. Only in release builds: other builds would be rebuilt after each commit.
fn write_revision() {
    println!("cargo::rerun-if-env-changed=GRIT_REVISION");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let Some(folder) = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else { return };
    if !is_release || env::var_os("GRIT_REVISION").is_some() {
        return;
    }
    if let Some(revision) = revision::of(&folder) {
        println!("cargo::rustc-env=GRIT_REVISION={}", revision.commit);
        for path in revision.changed_with {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// Whether the C compiler, which links for Rust, has the static unwinder. The compiler prints the name unchanged if it cannot find the file.
fn has_archive() -> bool {
    let found = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    found.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_absolute())
}
