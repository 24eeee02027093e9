//! `cargo xtask test`: all checks of CI in named and timed steps; stops at the first failed step. With the names of tests, or a core, only the
//! tests.

mod binaries;
mod cores;
mod options;
mod pools;
mod report;
mod running;
mod snapshots;
mod workflow;

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, ensure};

use crate::{
    release, setup,
    steps::{Steps, cargo, programs, root, run as execute, target},
};
use options::Options;
use report::Report;

/// Run the long tests in full. Read by `grit_testkit`.
const NIGHTLY: &str = "GRIT_TEST_NIGHTLY";

/// The directory of the programs of a release build. Read by `grit_tests::dist`.
const RELEASE: &str = "GRIT_TEST_RELEASE";

/// The file in which tests list what this machine cannot test. Read by `grit_testkit`.
const NOT_COVERED: &str = "GRIT_TEST_NOT_COVERED";

/// What CI does not cover: the list of `--known-missing`.
const KNOWN: &str = "tests/not-covered.txt";

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(arguments)?;
    if options.build_only {
        return binaries::build().map(drop);
    }
    let mut steps = Steps::new();
    let mut report = Report::new(target().join("not-covered"))?;
    if options.set_up {
        steps.step("set-up", || {
            let missing = setup::for_tests(options.allow_missing)?;
            missing.into_iter().for_each(|line| report.not_set_up("set-up", line));
            Ok(())
        })?;
    }
    let mut cores = Vec::new();
    steps.step("cores", || {
        for core in cores::chosen(&options)? {
            match core.prepare(options.set_up) {
                Ok(()) => cores.push(core),
                Err(error) if options.allow_missing => report.not_set_up("cores", format!("{error:#}")),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })?;
    let everything = options.everything();
    if everything {
        steps.step("release workflow", || match workflow::lint(options.set_up) {
            Err(error) if options.allow_missing => {
                report.not_set_up("release workflow", format!("{error:#}"));
                Ok(())
            }
            other => other,
        })?;
        steps.step("fmt", || execute(&mut cargo(&["fmt", "--all", "--check"])))?;
        steps.step("terraform fmt", terraform_fmt)?;
        steps.step("clippy", || {
            let mut command = cargo(&["clippy", "--workspace", "--all-targets"]);
            execute(command.args(FEATURES).args(["--", "-D", "warnings"]))
        })?;
    }
    // All targets together: a separate build of the programs would compile much of the workspace twice.
    let mut tests = Vec::new();
    steps.step("build", || {
        tests = binaries::build()?;
        Ok(())
    })?;
    let mut environment = environment(&options);
    let compared = snapshots::compared()?;
    environment.push((snapshots::VARIABLE, compared.clone()));
    if options.nightly {
        steps.step("release build", || {
            let mut programs = PathBuf::new();
            for package in ["grit-wrapper", "terraform-provider-grit"] {
                programs = release::build(&[package], &[package])?;
            }
            environment.push((RELEASE, programs));
            Ok(())
        })?;
    }
    steps.step("test", || {
        let jobs = pools::jobs(&tests, &cores, &options, &mut report)?;
        running::run(jobs, &options, &environment, &mut report)
    })?;
    if everything && !options.allow_missing {
        steps.step("snapshots", || snapshots::check(&compared))?;
    }
    if everything {
        more_steps(&mut steps, &options)?;
    }
    steps.summary();
    report.print();
    if options.known_missing {
        let known = fs::read_to_string(root().join(KNOWN)).with_context(|| format!("read {KNOWN}"))?;
        let unknown = report.not_covered_beside(&known);
        ensure!(unknown.is_empty(), "not covered, and not in {KNOWN}:\n  {}", unknown.join("\n  "));
    }
    Ok(())
}

/// The functions for the crate in tests/fuzz/, which is not a part of the workspace.
const FEATURES: [&str; 2] = ["--features", "grit-ssh/fuzzing"];

fn more_steps(steps: &mut Steps, options: &Options) -> anyhow::Result<()> {
    if options.nightly {
        // There are few, and each starts a compiler.
        steps.step("doc tests", || execute(&mut cargo(&["test", "--workspace", "--doc"])))?;
    }
    steps.step("bench --quick", || execute(Command::new(programs("debug").join("bench")).arg("--quick")))?;
    // For developers: no crate is published as a library, so the docs include private items and can link to them.
    steps.step("doc", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
        // With the features of the clippy step, whose work cargo then reuses: examples, of which there are none, select the features of
        // development dependencies. All programs except grit-wrapper, whose library has the same name.
        command.args(["--lib", "--examples", "--bin", "[!g]*"]).args(FEATURES);
        execute(command.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
    })
}

/// The environment of every test.
fn environment(options: &Options) -> Vec<(&'static str, PathBuf)> {
    let mut variables = vec![("INSTA_WORKSPACE_ROOT", root())];
    if options.nightly {
        variables.push((NIGHTLY, "1".into()));
    }
    if options.allow_missing {
        variables.push((NOT_COVERED, target().join("not-covered")));
    }
    variables
}

fn terraform_fmt() -> anyhow::Result<()> {
    let terraform = setup::terraform()?;
    ["examples", "tests/src"]
        .iter()
        .map(|folder| root().join(folder))
        .filter(|folder| folder.is_dir())
        .try_for_each(|folder| {
            let mut command = Command::new(&terraform);
            // The machine's CLI configuration must not affect this step.
            command.env("TF_CLI_CONFIG_FILE", "/dev/null");
            execute(command.args(["fmt", "-check", "-recursive", "-diff"]).arg(folder))
        })
}
