//! `cargo xtask gen`: regenerates generated files. The tests that compare them with the committed files also write them.

use crate::steps::{cargo, run as execute};

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [] => {}
        [option] if option == "--release" => return write_absolute_links(),
        _ => anyhow::bail!("gen accepts only --release"),
    }
    let update = |arguments: &[&str]| execute(cargo(arguments).env("GRIT_UPDATE_GENERATED", "1"));
    update(&["test", "--package", "grit-proto"])?;
    update(&["test", "--package", "terraform-provider-grit", "--test", "docs"])?;
    update(&["test", "--package", "grit-testkit", "--test", "modules"])?;
    update(&[
        "test",
        "--package",
        "grit-tests",
        "--lib",
        "--",
        "pages_show_the_recorded",
        "has_recorded_traces",
    ])
}

/// Writes absolute links into the registry pages, for the commit of a release: the registries do not rewrite links to other files.
fn write_absolute_links() -> anyhow::Result<()> {
    let test = ["test", "--package", "grit-testkit", "--test", "documents", "--", "released_pages_"];
    execute(cargo(&test).env("GRIT_RELEASE_LINKS", "1"))
}
