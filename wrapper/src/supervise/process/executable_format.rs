//! Whether the kernel can run a file, asked before it is tried.
//!
//! The C library hands a file that the kernel refuses (ENOEXEC) to /bin/sh, which would take the bytes of a program for another processor
//! as commands. A file without `#!` is refused as well, as upstream's wrapper does it.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use rustix::io::Errno;

const ELF: [u8; 4] = *b"\x7fELF";

/// The processor, in the header of an ELF file, behind the class and the order of bytes.
const MACHINE: std::ops::Range<usize> = 18..20;

/// Older processors whose programs the newer one runs as well: i386 on x86-64, and ARM on ARM64.
const ALSO: [(u16, u16); 2] = [(62, 3), (183, 40)];

/// # Errors
///
/// `ENOEXEC`, "exec format error", for a file that the kernel surely refuses. One that cannot be read is left to the kernel.
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

/// Whether it is a program for the processor that runs ours.
fn is_for(file: &[u8], ours: &[u8]) -> bool {
    let machine = |head: &[u8]| Some(u16::from_ne_bytes(head.get(MACHINE)?.try_into().ok()?));
    match (file.starts_with(&ELF), machine(file), machine(ours)) {
        (true, Some(file), Some(ours)) => file == ours || ALSO.contains(&(ours, file)),
        // We could not look at ourselves.
        (true, Some(_), None) => true,
        _ => false,
    }
}

/// Whether something was registered that runs other formats, such as an emulator: then the kernel alone can tell.
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
