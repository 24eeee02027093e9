//! `cargo xtask simulate --mutations`: shows that the simulation finds known defects, each for the promise that it breaks.
//!
//! All patches are applied to one copy of the repository. Each adds its defect behind a switch, the environment variable [`SWITCH`].

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};

use super::choose;
use crate::steps::{cargo, output, root, run as execute, target};

/// A mutation must be found within this number of seeds.
const SEEDS: u64 = 3_000;

/// Without a mutation, the copy must not fail in this number of seeds.
const SEEDS_WITHOUT: u64 = 1_000;

const SWITCH: &str = "GRIT_MUTATION";

/// The crates whose unit tests are run, with their folders: the programs of other tests would replace those of this repository.
const LIBRARIES: [(&str, &str, &str); 5] = [
    (SIMULATION, "grit-tests", "tests"),
    ("grit_provider", "terraform-provider-grit", "provider"),
    ("grit_plugin", "grit-plugin", "provider/plugin"),
    ("grit_ssh", "grit-ssh", "provider/ssh"),
    ("grit_wrapper", "grit-wrapper", "wrapper"),
];

const SIMULATION: &str = "grit_tests";

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
    eprintln!("building the simulation and the unit tests with all mutations");
    let programs = Programs::build(&copy)?;
    eprintln!("running {SEEDS_WITHOUT} seeds without a mutation");
    let without = programs.seeds(SEEDS_WITHOUT)?.output()?;
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
            let begin = Instant::now();
            let found = mutation.search(&programs).with_context(|| mutation.name.clone())?;
            let seconds = begin.elapsed().as_secs_f64();
            match found {
                Ok(found) => println!("  {:<44} {seconds:>5.1} s  {found}", mutation.name),
                Err(why) => {
                    println!("  {:<44} {seconds:>5.1} s  MISSED: {why}", mutation.name);
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

    fn search(&self, programs: &Programs) -> anyhow::Result<Found> {
        let mut command = match &self.expected {
            Expected::Violation(text) => {
                let mut command = programs.seeds(SEEDS)?;
                command.env("GRIT_SIMULATION_EXPECT", text);
                command
            }
            Expected::Test(binary, test) if LIBRARIES.iter().all(|(library, ..)| library != binary) => {
                return Ok(Ok(format!("not run: {binary} {test}")));
            }
            Expected::Test(library, test) => {
                let mut command = programs.of(library)?;
                command.args(["--exact", test]);
                command
            }
        };
        let outcome = command.env(SWITCH, &self.name).output().context("start the program")?;
        let text = String::from_utf8_lossy(&outcome.stdout);
        match self.expected.found(&text) {
            Some(found) => Ok(found),
            None => bail!("nothing was run:\n{text}{}", String::from_utf8_lossy(&outcome.stderr)),
        }
    }
}

/// The test programs of the copy.
struct Programs {
    copy: PathBuf,
    /// By library.
    paths: BTreeMap<String, PathBuf>,
}

impl Programs {
    /// Builds all of them together: alone, each has dependencies with other features.
    fn build(copy: &Path) -> anyhow::Result<Self> {
        let mut command = cargo(&["test", "--profile", "simulation", "--lib", "--no-run"]);
        command.args(LIBRARIES.iter().flat_map(|(_, package, _)| ["--package", package]));
        // With the dependencies of the simulation itself, which are compiled already.
        command.current_dir(copy).env("CARGO_TARGET_DIR", target());
        let outcome = command.output().context("start cargo")?;
        let text = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.status.success(), "cannot build the copy:\n{text}");
        Ok(Self { copy: copy.to_owned(), paths: text.lines().filter_map(program).collect() })
    }

    /// The test program of a library, in its folder.
    fn of(&self, library: &str) -> anyhow::Result<Command> {
        let path = self.paths.get(library).with_context(|| format!("cargo has not built {library}"))?;
        let folder = LIBRARIES.iter().find(|(name, ..)| *name == library).map_or("", |(.., folder)| *folder);
        let mut command = Command::new(path);
        command.current_dir(self.copy.join(folder)).env("RUST_BACKTRACE", "0");
        Ok(command)
    }

    /// The simulation, with the seeds from 1 to this number.
    fn seeds(&self, number: u64) -> anyhow::Result<Command> {
        let mut command = self.of(SIMULATION)?;
        choose(&mut command, &[("FROM", 1), ("SEEDS", number)]);
        Ok(command)
    }
}

/// The library and the path of a test program, from a line of cargo: `Executable unittests src/lib.rs (/target/deps/LIBRARY-HASH)`.
fn program(line: &str) -> Option<(String, PathBuf)> {
    let (_, path) = line.trim_start().strip_prefix("Executable ")?.split_once('(')?;
    let path = Path::new(path.strip_suffix(')')?);
    let (library, _) = path.file_name()?.to_str()?.rsplit_once('-')?;
    Some((library.to_owned(), path.to_owned()))
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
    #[test]
    fn program_of_a_library_is_read() {
        let line = "  Executable unittests src/lib.rs (/target/simulation/deps/grit_ssh-0a1b)";
        let (library, path) = program(line).unwrap();
        assert_eq!(library, "grit_ssh");
        assert_eq!(path, Path::new("/target/simulation/deps/grit_ssh-0a1b"));
        assert_eq!(program("   Compiling grit-ssh v0.1.0 (/copy/provider/ssh)"), None);
    }
}
