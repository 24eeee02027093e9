//! Links the unwinder into the program, so that it needs no shared library beside libc, and has its revision written into release builds.
//!
//! Rust's standard library asks the linker for `-lgcc_s`, which is a shared library of its own on GNU systems: one more thing for a host to
//! have, and some hundred kilobytes of mapped memory in an idle wrapper. A linker script of that name, found first, answers with the
//! static half of the same library. Where that half is not installed, or with another libc, nothing is changed.

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

/// Sets `GRIT_REVISION` for the compiler, unless who builds has set it. Only in release builds: others would be built anew after each commit.
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

/// Whether the C compiler, which links for Rust, has the static unwinder. It echoes a name that it cannot find.
fn has_archive() -> bool {
    let found = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    found.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_absolute())
}
