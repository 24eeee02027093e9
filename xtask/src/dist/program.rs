//! The built programs, and the names of their platform.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail, ensure};

use super::write;
use crate::steps::output;

/// The platform in file names of Terraform: `linux_amd64`.
pub(super) fn platform() -> anyhow::Result<String> {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    Ok(format!("{system}_{}", architecture()?))
}

/// The name of Debian and Go for the architecture of this machine.
pub(super) fn architecture() -> anyhow::Result<&'static str> {
    Ok(match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no releases for the architecture {other}"),
    })
}

/// Copies a program without its symbols.
pub(super) fn strip(from: &Path, to: &Path) -> anyhow::Result<()> {
    write(to, [], 0o755)?;
    if cfg!(target_os = "linux") {
        output(Command::new("strip").args(["--strip-unneeded", "-o"]).args([to, from]))?;
    } else {
        fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    }
    Ok(())
}

/// Fails if a Linux program needs a dynamic loader, and with it the C library of the host.
pub(super) fn check_static(path: &Path) -> anyhow::Result<()> {
    if cfg!(target_os = "linux") {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let has_loader =
            has_loader(&bytes).with_context(|| format!("{} is not an ELF file", path.display()))?;
        ensure!(!has_loader, "{} is not statically linked", path.display());
    }
    Ok(())
}

/// Whether a 64-bit ELF file has a segment of the type `PT_INTERP`. `None` if it is not such a file.
fn has_loader(elf: &[u8]) -> Option<bool> {
    const INTERP: u32 = 3;
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |at: usize| Some(usize::from(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?)));
    let (size, count) = (number(54)?, number(56)?);
    let start = usize::try_from(u64::from_le_bytes(*elf.get(32..)?.first_chunk()?)).ok()?;
    let types: Option<Vec<u32>> = (0..count)
        .map(|at| Some(u32::from_le_bytes(*elf.get(start + at * size..)?.first_chunk()?)))
        .collect();
    Some(types?.contains(&INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_program_has_a_loader() {
        // This test is a dynamically linked program.
        let path = std::env::current_exe().unwrap();
        assert_eq!(has_loader(&fs::read(&path).unwrap()), Some(true));
        assert!(check_static(&path).unwrap_err().to_string().contains("not statically linked"));
        assert_eq!(has_loader(b"#!/bin/sh\n"), None);
        assert_eq!(has_loader(b"\x7fELF\x02\x01"), None);
    }
}
