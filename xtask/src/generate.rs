//! `cargo xtask gen`: regenerates generated files. The tests that compare them with the committed files also write them.

use crate::steps::{cargo, run as execute};

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    anyhow::ensure!(arguments.is_empty(), "gen accepts no arguments");
    execute(cargo(&["test", "--package", "grit-proto"]).env("GRIT_UPDATE_GENERATED", "1"))
}
