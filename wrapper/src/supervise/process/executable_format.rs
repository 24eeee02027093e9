//! Checks whether the kernel can execute a file.
//!
//! If the kernel rejects a file with ENOEXEC, the C library runs it with /bin/sh, which would interpret the bytes of a binary for another
//! CPU as commands. A script without `#!` is rejected as well, as in upstream's wrapper.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use rustix::io::Errno;

const ELF: [u8; 4] = *b"\x7fELF";

/// Position of the CPU architecture in an ELF header.
const MACHINE: std::ops::Range<usize> = 18..20;

/// Older architectures whose binaries the newer one executes as well: i386 on x86-64, and ARM on ARM64.
const COMPATIBLE_MACHINES: [(u16, u16); 2] = [(62, 3), (183, 40)];

/// Fails with `ENOEXEC`, "exec format error", if the kernel certainly rejects the file. A file that cannot be read is not checked.
pub(super) fn check(program: &Path) -> io::Result<()> {
    let Ok(file) = head(program) else { return Ok(()) };
    let ours = head(Path::new("/proc/self/exe")).unwrap_or_default();
    if file.starts_with(b"#!") || is_for(&file, &ours) || others_are_run() {
        return Ok(());
    }
    Err(Errno::NOEXEC.into())
}

fn head(program: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(program)?.take(64).read_to_end(&mut head)?;
    Ok(head)
}

/// Whether the file is a binary for the CPU architecture of this process.
fn is_for(file: &[u8], ours: &[u8]) -> bool {
    let machine = |head: &[u8]| Some(u16::from_ne_bytes(head.get(MACHINE)?.try_into().ok()?));
    match (file.starts_with(&ELF), machine(file), machine(ours)) {
        (true, Some(file), Some(ours)) => file == ours || COMPATIBLE_MACHINES.contains(&(ours, file)),
        // The wrapper's binary could not be read.
        (true, Some(_), None) => true,
        _ => false,
    }
}

/// Whether binfmt_misc has other formats, such as an emulator: then only the kernel can decide.
fn others_are_run() -> bool {
    let entries = fs::read_dir("/proc/sys/fs/binfmt_misc").into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name() != "status" && entry.file_name() != "register");
    named
        .into_iter()
        .any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text.starts_with("enabled")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16) -> Vec<u8> {
        let mut head = ELF.to_vec();
        head.resize(MACHINE.start, 0);
        head.extend(machine.to_ne_bytes());
        head
    }

    #[test]
    fn binary_for_another_cpu_is_rejected() {
        assert!(is_for(&elf(62), &elf(62)) && is_for(&elf(3), &elf(62)) && is_for(&elf(40), &elf(183)));
        assert!(!is_for(&elf(183), &elf(62)) && !is_for(&elf(62), &elf(3)));
        assert!(!is_for(b"echo hello", &elf(62)) && !is_for(b"", &elf(62)) && !is_for(&ELF, &elf(62)));
        assert!(check(Path::new("/proc/self/exe")).is_ok());
    }
}
