//! Links the unwinder statically, so that the program needs no shared library except libc.
//!
//! Rust's standard library asks the linker for `-lgcc_s`, which is a separate shared library on GNU systems: another requirement for a host,
//! and some hundred kilobytes of mapped memory in an idle wrapper. A linker script of that name, which the linker finds first, selects the
//! static part of the same library. If this part is not installed, or with another libc, nothing is changed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
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

/// Whether the C compiler, which links for Rust, has the static unwinder. The compiler prints the name unchanged if it cannot find the file.
fn has_archive() -> bool {
    let found = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    found.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_absolute())
}
