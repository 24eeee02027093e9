//! `cargo xtask bench`: builds and runs the benchmarks of `tests/src/bin/bench.rs`.

use std::{fs, process::Command};

use anyhow::Context as _;

use crate::{
    release, setup,
    steps::{cargo, programs, run as execute},
};

/// The measured programs, and the benchmarks. Not all programs, because linking one with optimisation over all crates takes a minute.
///
/// The provider and the benchmarks have the same features, and much of their builds uses one core only: side by side they take minutes less.
const PROGRAMS: [(&[&str], &[&str]); 2] = [
    (&["grit-wrapper"], &["grit-wrapper"]),
    (&["terraform-provider-grit", "grit-tests"], &["terraform-provider-grit", "bench"]),
];

/// The stand-ins. In an optimized build they are other names of the program `bench`.
const STAND_INS: [&str; 4] = ["carry", "lab-init", "runner-stand-in", "terraform-provider-lab"];

/// Prints the options and the benchmarks, without the optimized build that a run needs.
pub(crate) fn help() -> anyhow::Result<()> {
    execute(&mut cargo(&["run", "--quiet", "--package", "grit-tests", "--bin", "bench", "--", "--help"]))
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    setup::terraform()?;
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let mut folder = programs("debug");
    if is_quick {
        let mut command = cargo(&["build", "--workspace"]);
        let programs = PROGRAMS.iter().flat_map(|(_, programs)| *programs).chain(&STAND_INS);
        execute(command.args(programs.flat_map(|program| ["--bin", program])))?;
    } else {
        for (packages, programs) in PROGRAMS {
            folder = release::build(packages, programs)?;
        }
        for name in STAND_INS {
            let path = folder.join(name);
            if path.exists() {
                fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
            }
            fs::hard_link(folder.join("bench"), &path)
                .with_context(|| format!("create {}", path.display()))?;
        }
    }
    execute(Command::new(folder.join("bench")).args(arguments))
}
