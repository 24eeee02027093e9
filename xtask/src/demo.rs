//! `cargo xtask demo`: builds and runs the demo, see `tests/src/bin/demo.rs`.

use std::process::Command;

use crate::{
    setup,
    steps::{cargo, programs, run as execute},
};

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    setup::terraform()?;
    execute(&mut cargo(&["build", "--workspace", "--bins"]))?;
    execute(Command::new(programs("debug").join("demo")).args(arguments))
}
