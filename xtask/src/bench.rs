//! `cargo xtask bench`: builds and runs the benchmarks of `tests/src/bin/bench.rs`.

use std::process::Command;

use crate::{
    setup,
    steps::{cargo, programs, run as execute},
};

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    setup::terraform()?;
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let mut build = cargo(&["build", "--workspace", "--bins"]);
    if !quick {
        build.arg("--release");
    }
    execute(&mut build)?;
    execute(Command::new(programs(if quick { "debug" } else { "release" }).join("bench")).args(arguments))
}
