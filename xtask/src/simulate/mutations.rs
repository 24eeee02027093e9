//! `cargo xtask simulate --mutations`: shows that the simulation finds known defects, each for the promise that it breaks.
//!
//! All patches are applied to one copy of the repository. Each adds its defect behind a switch, the environment variable [`SWITCH`].

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use super::seeds;
use crate::steps::{cargo, output, root, run as execute, target};

/// A mutation must be found within this number of seeds.
const SEEDS: u64 = 10_000;

/// Without a mutation, the copy must not fail in this number of seeds.
const SEEDS_WITHOUT: u64 = 1_000;

const SWITCH: &str = "GRIT_MUTATION";

/// The unit tests that are run: the programs of other tests would replace those of this repository.
const LIBRARIES: [(&str, &str); 4] = [
    ("grit_provider", "terraform-provider-grit"),
    ("grit_plugin", "grit-plugin"),
    ("grit_ssh", "grit-ssh"),
    ("grit_wrapper", "grit-wrapper"),
];

#[derive(Debug, PartialEq, Eq)]
struct Mutation {
    name: String,
    expected: Expected,
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// A violation with this text, in a seed.
    Violation(String),
    /// The simulation does not run this code: this test of this binary fails.
    Test(String, String),
}

/// How a mutation was found, or what happened instead.
type Found = Result<String, String>;

/// Runs the mutations with `wanted` in their names.
pub(super) fn run(wanted: &str) -> anyhow::Result<()> {
    let folder = target().join("mutations");
    let patches = patches()?;
    let (patched, copy) = (folder.join("patched"), folder.join("tree"));
    patch_files(&patches, &patched)?;
    copy_tree(&patched, &copy)?;
    // The first patch is the switch.
    let mutations =
        patches.iter().skip(1).map(|patch| Mutation::read(patch)).collect::<Result<Vec<_>, _>>()?;
    let (of_tests, of_seeds): (Vec<_>, Vec<_>) = mutations
        .into_iter()
        .filter(|mutation| mutation.name.contains(wanted))
        .partition(|mutation| matches!(mutation.expected, Expected::Test(..)));
    eprintln!("building the simulation with all mutations");
    let without = in_copy(&copy, seeds(&[("FROM", 1), ("SEEDS", SEEDS_WITHOUT)])).output()?;
    ensure!(
        without.status.success(),
        "the copy fails without a mutation:\n{}{}",
        String::from_utf8_lossy(&without.stdout),
        String::from_utf8_lossy(&without.stderr)
    );
    let mut missed = Vec::new();
    for (title, mutations) in [("found by seeds", of_seeds), ("found by tests", of_tests)] {
        println!("\n{title}:");
        for mutation in mutations {
            match mutation.search(&copy).with_context(|| mutation.name.clone())? {
                Ok(found) => println!("  {:<44} {found}", mutation.name),
                Err(why) => {
                    println!("  {:<44} MISSED: {why}", mutation.name);
                    missed.push(mutation.name);
                }
            }
        }
    }
    ensure!(missed.is_empty(), "{} mutations were not found: {}", missed.len(), missed.join(", "));
    Ok(())
}

impl Mutation {
    fn read(patch: &Path) -> anyhow::Result<Self> {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(patch).with_context(|| format!("read {}", patch.display()))?;
        let expected =
            Expected::parse(&text).with_context(|| format!("{name} has no line with its violation"))?;
        Ok(Self { name, expected })
    }

    fn search(&self, copy: &Path) -> anyhow::Result<Found> {
        let command = match &self.expected {
            Expected::Violation(text) => {
                let mut command = seeds(&[("FROM", 1), ("SEEDS", SEEDS)]);
                command.env("GRIT_SIMULATION_EXPECT", text);
                command
            }
            Expected::Test(binary, test) if LIBRARIES.iter().all(|(library, _)| library != binary) => {
                return Ok(Ok(format!("not run: {binary} {test}")));
            }
            Expected::Test(_, test) => {
                let mut command =
                    cargo(&["test", "--profile", "simulation", "--lib", "--package", "grit-tests"]);
                // All together: alone, each has dependencies with other features.
                command.args(LIBRARIES.iter().flat_map(|(_, package)| ["--package", package]));
                command.args(["--", "--exact", test]);
                command
            }
        };
        let outcome = in_copy(copy, command).env(SWITCH, &self.name).output().context("start cargo")?;
        let text = String::from_utf8_lossy(&outcome.stdout);
        match self.expected.found(&text) {
            Some(found) => Ok(found),
            None => bail!("nothing was run:\n{text}{}", String::from_utf8_lossy(&outcome.stderr)),
        }
    }
}

impl Expected {
    /// Reads the lines before the first difference of a patch.
    fn parse(patch: &str) -> Option<Self> {
        let mut lines = patch.lines().take_while(|line| !line.starts_with("diff "));
        lines.find_map(|line| {
            if let Some(text) = line.strip_prefix("Violation: ") {
                return Some(Self::Violation(text.to_owned()));
            }
            let (binary, test) = line.strip_prefix("Found by: ")?.split_once(' ')?;
            Some(Self::Test(binary.to_owned(), test.to_owned()))
        })
    }

    /// Reads the output of the run.
    fn found(&self, output: &str) -> Option<Found> {
        output.lines().find_map(|line| match self {
            Self::Violation(_) => match line.strip_prefix("expected: ") {
                Some(found) => Some(Ok(found.to_owned())),
                None => Some(Err(line.strip_prefix("not expected: ")?.to_owned())),
            },
            Self::Test(_, test) => match line.strip_prefix(&format!("test {test} ... "))? {
                "FAILED" => Some(Ok(test.clone())),
                _ => Some(Err(format!("{test} passes"))),
            },
        })
    }
}

fn patches() -> anyhow::Result<Vec<PathBuf>> {
    let folder = root().join("tests/src/simulation/mutations");
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut patches = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    patches.sort();
    Ok(patches)
}

fn in_copy(copy: &Path, mut command: Command) -> Command {
    // With the dependencies of the simulation itself, which are compiled already.
    command.current_dir(copy).env("CARGO_TARGET_DIR", target()).env("RUST_BACKTRACE", "0");
    command
}

/// Creates `folder` with the files that the patches change, after all patches.
fn patch_files(patches: &[PathBuf], folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let changed = output(Command::new("git").args(["apply", "--numstat"]).args(patches).current_dir(root()))?;
    for file in changed.lines().filter_map(|line| line.rsplit('\t').next()) {
        let to = folder.join(file);
        fs::create_dir_all(parent(&to))?;
        fs::copy(root().join(file), &to).with_context(|| format!("copy {file}"))?;
    }
    // Below another repository, `git apply` would skip the files.
    let mut apply = Command::new("git");
    apply.arg("apply").args(patches).current_dir(folder).env("GIT_CEILING_DIRECTORIES", parent(folder));
    execute(&mut apply)
}

/// Copies the files of the repository that differ, so that cargo compiles only those. A file in `patched` is copied instead.
fn copy_tree(patched: &Path, copy: &Path) -> anyhow::Result<()> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    for file in output(&mut list)?.lines() {
        let (from, to) = (patched.join(file), copy.join(file));
        let from = if from.exists() { from } else { root().join(file) };
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        fs::create_dir_all(parent(&to))?;
        fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
    }
    Ok(())
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_result_of_a_mutation_is_read() {
        let of = |head: &str| {
            Expected::parse(&format!("A defect.\n{head}\n\ndiff --git a/b b/b\nViolation: no\n"))
        };
        let violation = of("Violation: a job was lost").unwrap();
        assert_eq!(violation, Expected::Violation("a job was lost".to_owned()));
        assert_eq!(of("Area: x"), None);
        assert_eq!(
            violation.found("10 x\nexpected: seed 7: m1: a job was lost\n").unwrap().unwrap(),
            "seed 7: m1: a job was lost"
        );
        assert_eq!(
            violation.found("not expected: 3 of 9 seeds failed").unwrap().unwrap_err(),
            "3 of 9 seeds failed"
        );
        assert_eq!(violation.found("error: could not compile"), None);
        let test = of("Found by: grit_ssh drain::tests::ends").unwrap();
        assert!(test.found("test drain::tests::ends ... FAILED").unwrap().is_ok());
        assert!(test.found("test drain::tests::ends ... ok").unwrap().is_err());
        assert_eq!(test.found("running 0 tests"), None);
    }
}
