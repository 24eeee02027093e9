//! `cargo xtask test`: everything that CI checks, each step named and timed; stops at the first that fails.

use std::process::Command;

use crate::{
    setup,
    steps::{Steps, cargo, programs, root, run as execute},
};

/// Tests that run at the same time. Most of them wait for processes, so two cores carry more than two; above this the
/// machine is busy all the time, and timing noise grows without the suite getting faster.
const TEST_THREADS: &str = "8";

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (ours, theirs) = match arguments.iter().position(|argument| argument == "--") {
        Some(place) => (&arguments[..place], &arguments[place + 1..]),
        None => (arguments, [].as_slice()),
    };
    let mut set_up = true;
    for argument in ours {
        match argument.as_str() {
            "--no-setup" => set_up = false,
            other => anyhow::bail!("unknown option {other}"),
        }
    }

    let mut steps = Steps::new();
    if set_up {
        steps.step("set-up", setup::for_tests)?;
    }
    steps.step("fmt", || execute(&mut cargo(&["fmt", "--all", "--check"])))?;
    steps.step("clippy", || {
        // With what the crate in fuzz/ calls, which is built by nobody else here.
        let features = ["--features", "terraform-provider-grit/fuzzing"];
        execute(
            cargo(&["clippy", "--workspace", "--all-targets"]).args(features).args(["--", "-D", "warnings"]),
        )
    })?;
    // All targets at once: with the programs alone, cargo would compile much of the workspace twice.
    steps.step("build", || execute(&mut cargo(&["build", "--workspace", "--all-targets"])))?;
    steps.step("test", || {
        let mut command = cargo(&["test", "--workspace"]);
        if !theirs.is_empty() {
            command.arg("--").args(theirs);
        }
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", TEST_THREADS);
        }
        execute(&mut command)
    })?;
    steps.step("bench --quick", || execute(Command::new(programs("debug").join("bench")).arg("--quick")))?;
    // For who works here: nothing is published as a library, so private items are part of the docs and may be linked to.
    steps.step("doc", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
        execute(command.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
    })?;
    steps.step("terraform fmt", || {
        let terraform = setup::terraform()?;
        ["examples", "tests/src"]
            .iter()
            .map(|folder| root().join(folder))
            .filter(|folder| folder.is_dir())
            .try_for_each(|folder| {
                let mut command = Command::new(&terraform);
                // The machine's own CLI configuration has nothing to do with ours, and may be broken.
                command.env("TF_CLI_CONFIG_FILE", "/dev/null");
                execute(command.args(["fmt", "-check", "-recursive", "-diff"]).arg(folder))
            })
    })?;
    steps.summary();
    Ok(())
}
