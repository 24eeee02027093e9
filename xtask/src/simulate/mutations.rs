//! `cargo xtask simulate --mutations`: puts known defects back, one at a time in a copy of the repository, and shows that the simulation finds each.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use super::seeds;
use crate::steps::{output, root, run as execute, target};

/// A mutation must be found within this number of seeds.
const SEEDS: u64 = 10_000;

/// Runs the mutations with `wanted` in their names.
pub(super) fn run(wanted: &str) -> anyhow::Result<()> {
    let copy = target().join("mutations").join("tree");
    copy_tree(&copy)?;
    let mut missed = Vec::new();
    for patch in patches()? {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !name.contains(wanted) {
            continue;
        }
        apply(&copy, &patch, &[])?;
        let found = search(&copy);
        apply(&copy, &patch, &["--reverse"])?;
        match found.with_context(|| name.clone())? {
            Some(violation) => println!("found   {name}: {violation}"),
            None => {
                println!("MISSED  {name}");
                missed.push(name);
            }
        }
    }
    ensure!(missed.is_empty(), "{} mutations were not found in {SEEDS} seeds", missed.len());
    Ok(())
}

fn patches() -> anyhow::Result<Vec<PathBuf>> {
    let folder = root().join("tests/src/simulation/mutations");
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut patches = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            patches.push(path);
        }
    }
    patches.sort();
    Ok(patches)
}

fn apply(copy: &Path, patch: &Path, options: &[&str]) -> anyhow::Result<()> {
    // Below another repository, `git apply` would skip the files.
    let mut command = Command::new("git");
    command
        .arg("apply")
        .args(options)
        .arg(patch)
        .current_dir(copy)
        .env("GIT_CEILING_DIRECTORIES", parent(copy));
    execute(&mut command)
}

/// The first seed with a violation.
fn search(copy: &Path) -> anyhow::Result<Option<String>> {
    let mut command = seeds(&[("SEEDS", SEEDS)]);
    command.current_dir(copy).env("CARGO_TARGET_DIR", parent(copy).join("target")).env("RUST_BACKTRACE", "0");
    let outcome = command.output().context("start cargo")?;
    let text = String::from_utf8_lossy(&outcome.stdout);
    let found = text.lines().find(|line| line.starts_with("seed "));
    match (found, outcome.status.success()) {
        (Some(found), _) => Ok(Some(found.to_owned())),
        (None, true) => Ok(None),
        (None, false) => bail!("no seed was run:\n{}", String::from_utf8_lossy(&outcome.stderr)),
    }
}

/// Copies the files of the repository that differ, so that cargo compiles only those.
fn copy_tree(copy: &Path) -> anyhow::Result<()> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    for file in output(&mut list)?.lines() {
        let (from, to) = (root().join(file), copy.join(file));
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
