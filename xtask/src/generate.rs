//! `cargo xtask gen`: regenerates generated files. The tests that compare them with the committed files also write them.

use crate::steps::{cargo, run as execute};

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    anyhow::ensure!(arguments.is_empty(), "gen accepts no arguments");
    let update = |arguments: &[&str]| execute(cargo(arguments).env("GRIT_UPDATE_GENERATED", "1"));
    update(&["test", "--package", "grit-proto"])?;
    update(&["test", "--package", "terraform-provider-grit", "--test", "docs"])?;
    update(&["test", "--package", "grit-testkit", "--test", "modules", "--test", "pictures"])
}
