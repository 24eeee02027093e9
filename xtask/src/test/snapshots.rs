//! Each snapshot is compared by at least one test of a whole run. A snapshot that none of them compares is out of date some day, and passes: for
//! example, one of a feature that no core of the run has.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::steps::{root, target};

/// The file to which insta adds the path of each snapshot that it compares.
pub(crate) const VARIABLE: &str = "INSTA_SNAPSHOT_REFERENCES_FILE";

/// The path of this file, which is empty at first.
pub(crate) fn compared() -> anyhow::Result<PathBuf> {
    let file = target().join("compared-snapshots");
    fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Fails if a snapshot of the workspace is not in the file.
pub(crate) fn check(compared: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(compared).with_context(|| format!("cannot read {}", compared.display()))?;
    let missing = missing(snapshots().context("cannot find the snapshots")?, &text);
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "no test of this run compares these snapshots: remove them, or run their tests on a core that has the feature (QUICK and NEEDS in \
         xtask/src/test/cores.rs)\n{}",
        missing.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n")
    )
}

fn missing(mut all: BTreeSet<PathBuf>, compared: &str) -> BTreeSet<PathBuf> {
    for path in compared.lines().filter_map(|line| fs::canonicalize(line).ok()) {
        all.remove(&path);
    }
    all
}

/// All snapshots of the workspace.
fn snapshots() -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
            let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if entry?.is_dir() && !is_hidden && path != target() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "snap") {
                found.insert(fs::canonicalize(path)?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_that_no_test_compares_is_missing() {
        let all = snapshots().unwrap();
        let is_of_actions =
            |path: &&PathBuf| path.ends_with("e2e__acceptance__invalid__wrong_values_of_actions.snap");
        let others = all.iter().filter(|path| !is_of_actions(path));
        let compared: String = others.map(|path| format!("{}\n", path.display())).collect();
        let left = missing(all.clone(), &compared);
        assert!(left.len() == 1 && left.iter().all(|path| is_of_actions(&path)), "{left:?}");
        assert_eq!(missing(left, "tests/tests/e2e/snapshots/unknown.snap\n").len(), 1);
    }
}
