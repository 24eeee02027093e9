//! `cargo xtask gen`: makes generated files again. The tests that compare them with what is committed also write them.

use crate::steps::{cargo, run as execute};

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    anyhow::ensure!(arguments.is_empty(), "gen accepts no arguments");
    execute(cargo(&["test", "--package", "grit-proto"]).env("GRIT_UPDATE_GENERATED", "1"))
}
