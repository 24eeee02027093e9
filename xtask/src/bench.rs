//! `cargo xtask bench`: builds and runs the benchmarks of `tests/src/bin/bench.rs`.

use std::process::Command;

use crate::{
    setup,
    steps::{cargo, programs, run as execute},
};

/// What the benchmarks measure, their stand-ins, and they themselves.
const PROGRAMS: [&str; 5] = ["terraform-provider-grit", "grit-wrapper", "bench", "carry", "runner-stand-in"];

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    setup::terraform()?;
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let mut build = cargo(&["build", "--workspace"]);
    // Not all programs: linking one with optimisation over all crates takes a minute.
    build.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
    if !quick {
        build.arg("--release");
    }
    execute(&mut build)?;
    execute(Command::new(programs(if quick { "debug" } else { "release" }).join("bench")).args(arguments))
}
