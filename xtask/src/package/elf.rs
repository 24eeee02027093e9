//! Architecture and libraries of a built program, read by binutils' readelf, which is installed
//! with every linker.

use std::{path::Path, process::Command};

use anyhow::{Context, bail};

use crate::steps::output;

/// The properties of a program for the package's fields.
#[derive(Debug)]
pub(super) struct Elf {
    /// Debian's name of the architecture.
    pub(super) architecture: &'static str,
    /// The minimum glibc version; `None` for a static program.
    glibc: Option<(u32, u32)>,
    /// Whether the unwinder is a shared library; see the wrapper's build script.
    libgcc: bool,
}

impl Elf {
    pub(super) fn read(path: &Path) -> anyhow::Result<Elf> {
        let mut command = Command::new("readelf");
        command.args(["--wide", "--file-header", "--dynamic", "--version-info"]).arg(path);
        Elf::parse(&output(command.env("LC_ALL", "C"))?)
            .with_context(|| format!("inspect {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Elf> {
        let lines = || text.lines().map(str::trim);
        let machine = lines().find_map(|line| line.strip_prefix("Machine:")).unwrap_or_default().trim();
        let architecture = match machine {
            "Advanced Micro Devices X86-64" => "amd64",
            "AArch64" => "arm64",
            "RISC-V" => "riscv64",
            other => bail!("unknown Debian architecture for ELF machine {other:?}"),
        };
        let needed = |library: &str| lines().any(|line| line.contains("(NEEDED)") && line.contains(library));
        let versions = text.split("Name: GLIBC_").skip(1).filter_map(version);
        Ok(Elf { architecture, glibc: versions.max(), libgcc: needed("[libgcc_s.so.1]") })
    }

    /// Packages that the program needs, as in a `Depends` field.
    pub(super) fn depends(&self) -> Vec<String> {
        let glibc = self.glibc.map(|(major, minor)| format!("libc6 (>= {major}.{minor})"));
        glibc.into_iter().chain(self.libgcc.then(|| "libgcc-s1 (>= 3.0)".to_owned())).collect()
    }
}

/// The first two numbers of a version at the beginning of a text. Names such as `PRIVATE` are not versions.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().next()?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: &str = "  Machine:                           Advanced Micro Devices X86-64\n \
        0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n";

    #[test]
    fn newest_glibc_symbol_sets_dependency() {
        let text = format!(
            "{NEEDS}  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 4\n  \
             0x0020:   Name: GLIBC_2.34  Flags: WEAK  Version: 3\n  \
             0x0030:   Name: GLIBC_2.9  Flags: none  Version: 2\n  \
             0x0040:   Name: GLIBC_PRIVATE  Flags: none  Version: 5\n"
        );
        let elf = Elf::parse(&text).unwrap();
        assert_eq!(elf.architecture, "amd64");
        assert_eq!(elf.depends(), ["libc6 (>= 2.34)"]);
    }

    #[test]
    fn libgcc_is_a_dependency_only_when_linked() {
        assert_eq!(Elf::parse("  Machine: AArch64\n").unwrap().depends(), [""; 0]);
        let shared = format!(
            "{NEEDS} 0x0000000000000001 (NEEDED)  Shared library: [libgcc_s.so.1]\n  0x10: Name: GLIBC_2.17  Flags: none\n"
        );
        assert_eq!(Elf::parse(&shared).unwrap().depends(), ["libc6 (>= 2.17)", "libgcc-s1 (>= 3.0)"]);
    }

    #[test]
    fn unknown_elf_machine_is_an_error() {
        let error = Elf::parse("  Machine:   MIPS R3000\n").unwrap_err().to_string();
        assert!(error.contains("MIPS R3000"), "{error}");
    }
}
