//! Runs programs in steps, and reports the time of each.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// The cargo that runs this program, in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Cargo's target directory.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The directory of built programs, such as `target/debug`.
pub(crate) fn programs(profile: &str) -> PathBuf {
    target().join(profile)
}

/// Runs a command with this program's standard streams; a failure is an error.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        let arguments: Vec<_> =
            command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        bail!("`{program} {}` failed with {status}", arguments.join(" "));
    }
    Ok(())
}

/// Runs a command and returns its trimmed stdout; a failure is an error with its stderr.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} failed with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout)
        .map(|text| text.trim().to_owned())
        .with_context(|| format!("read the output of {program}"))
}

/// A sequence of steps. The first failure ends it; the error has the step's name.
#[derive(Debug)]
pub(crate) struct Steps {
    started: Instant,
    done: Vec<(String, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Steps {
        Steps { started: Instant::now(), done: Vec::new() }
    }

    pub(crate) fn step(
        &mut self,
        name: &str,
        work: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        println!("==> {name}");
        let started = Instant::now();
        let outcome = work();
        let took = started.elapsed();
        println!(
            "<== {name}: {} in {:.1} s",
            if outcome.is_ok() { "ok" } else { "FAILED" },
            took.as_secs_f64()
        );
        self.done.push((name.to_owned(), took));
        outcome.with_context(|| format!("step `{name}` failed"))
    }

    /// Prints one line for each step and one for the total.
    pub(crate) fn summary(&self) {
        println!();
        for (name, took) in &self.done {
            println!("{:>8.1} s  {name}", took.as_secs_f64());
        }
        println!("{:>8.1} s  all {} steps passed", self.started.elapsed().as_secs_f64(), self.done.len());
    }
}
