//! The oldest core that the suite runs on is the one that the documentation and every configuration name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

const CORES: &str = include_str!("../../cores.txt");

/// `1.6`.
fn minimum() -> String {
    let line = CORES.lines().find(|line| !line.starts_with('#')).unwrap();
    let version = line.split_whitespace().next().unwrap();
    version.rsplit_once('.').unwrap().0.to_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn configurations(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            configurations(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "tf") {
            found.push(path);
        }
    }
}

#[test]
fn documentation_names_oldest_tested_core() {
    let wanted = format!("Terraform {} or newer", minimum());
    let documents = [
        "README.md",
        "CHANGELOG.md",
        "docs/index.md",
        "docs/guides/limits.md",
        "docs/guides/quick-start.md",
        "provider/plugin/src/process/launch.rs",
    ];
    for document in documents {
        // In Rust a string can be continued on the next line.
        let text = fs::read_to_string(root().join(document)).unwrap().replace('\\', " ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&wanted), "{document} does not contain `{wanted}`");
    }
}

/// `waitid` supports pidfds since this version.
const KERNEL: &str = "5.4";

#[test]
fn documents_agree_on_oldest_kernel() {
    let documents = [
        "CHANGELOG.md",
        "docs/wrapper/README.md",
        "docs/wrapper/running.md",
        "docs/releases.md",
        "docs/guides/limits.md",
    ];
    for document in documents {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let words: Vec<_> = text.split_whitespace().collect();
        let is_kernel = |at: &[&str]| matches!(at[0], "Linux" | "kernel") && at[2] == "or";
        let named: Vec<_> = words.windows(3).filter(|at| is_kernel(at)).map(|at| at[1]).collect();
        assert_eq!(named, [KERNEL], "{document}");
    }
}

#[test]
fn configurations_require_oldest_tested_core() {
    let mut files = Vec::new();
    for folder in ["examples", "tests/src"] {
        configurations(&root().join(folder), &mut files);
    }
    let wanted = format!("required_version = \">= {}\"", minimum());
    let mut count = 0;
    for file in files {
        for line in
            fs::read_to_string(&file).unwrap().lines().filter(|line| line.contains("required_version"))
        {
            assert_eq!(line.trim(), wanted, "{}", file.display());
            count += 1;
        }
    }
    assert!(count > 0, "no configuration requires a version");
}
