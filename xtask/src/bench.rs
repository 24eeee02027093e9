//! `cargo xtask bench`: builds and runs the benchmarks of `tests/src/bin/bench.rs`.

use std::process::Command;

use crate::{
    setup,
    steps::{cargo, programs, run as execute},
};

/// The measured programs, the stand-ins, and the benchmarks. Not all programs, because linking one with optimisation over all crates
/// takes a minute.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("grit-wrapper", &["grit-wrapper"]),
    ("terraform-provider-grit", &["terraform-provider-grit"]),
    ("grit-tests", &["bench", "carry", "runner-stand-in"]),
];

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    setup::terraform()?;
    let quick = arguments.iter().any(|argument| argument == "--quick");
    if quick {
        execute(build(PROGRAMS.iter().flat_map(|(_, programs)| *programs)).arg("--workspace"))?;
    } else {
        // Each package separately, as it is shipped: a build of all packages would unify their features.
        for (package, programs) in PROGRAMS {
            execute(build(programs).args(["--release", "--package", package]))?;
        }
    }
    execute(Command::new(programs(if quick { "debug" } else { "release" }).join("bench")).args(arguments))
}

fn build<'a>(programs: impl IntoIterator<Item = &'a &'a str>) -> Command {
    let mut command = cargo(&["build"]);
    command.args(programs.into_iter().flat_map(|program| ["--bin", program]));
    command
}
