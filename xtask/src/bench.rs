//! `cargo xtask bench`: builds and runs the benchmarks of `tests/src/bin/bench.rs`.

use std::process::Command;

use crate::{
    release, setup,
    steps::{cargo, programs, run as execute},
};

/// The measured programs, the stand-ins, and the benchmarks. Not all programs, because linking one with optimisation over all crates
/// takes a minute.
///
/// The provider and the programs of the tests have the same features, and much of their builds uses one core only: side by side they take
/// minutes less.
const PROGRAMS: [(&[&str], &[&str]); 2] = [
    (&["grit-wrapper"], &["grit-wrapper"]),
    (
        &["terraform-provider-grit", "grit-tests"],
        &[
            "terraform-provider-grit",
            "bench",
            "carry",
            "lab-init",
            "runner-stand-in",
            "terraform-provider-lab",
        ],
    ),
];

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    setup::terraform()?;
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    if !is_quick {
        setup::for_benchmarks();
    }
    let mut folder = programs("debug");
    if is_quick {
        let mut command = cargo(&["build", "--workspace"]);
        let programs = PROGRAMS.iter().flat_map(|(_, programs)| *programs);
        execute(command.args(programs.flat_map(|program| ["--bin", program])))?;
    } else {
        for (packages, programs) in PROGRAMS {
            folder = release::build(packages, programs)?;
        }
    }
    execute(Command::new(folder.join("bench")).args(arguments))
}
