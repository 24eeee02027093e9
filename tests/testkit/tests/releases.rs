//! The release workflow, and the tables of docs/releases.md.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::Path};

const WORKFLOW: &str = include_str!("../../../.github/workflows/release.yml");
const PAGE: &str = include_str!("../../../docs/releases.md");

/// The jobs of the workflow: name and text.
fn jobs() -> Vec<(&'static str, String)> {
    let (_, text) = WORKFLOW.split_once("\njobs:\n").unwrap();
    let mut jobs: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        match line
            .strip_prefix("  ")
            .filter(|rest| !rest.starts_with(' '))
            .and_then(|rest| rest.strip_suffix(':'))
        {
            Some(name) => jobs.push((name, String::new())),
            None => jobs.last_mut().unwrap().1 += &format!("{line}\n"),
        }
    }
    jobs
}

#[test]
fn only_publish_job_can_write_or_read_secrets() {
    let jobs = jobs();
    let names: Vec<_> = jobs.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["test", "build", "publish"]);
    assert!(WORKFLOW.contains("\npermissions: {}\n"));
    for (name, text) in &jobs {
        let privileged = [": write", "secrets.", "github.token", "environment:"];
        let found: Vec<_> = privileged.iter().filter(|word| text.contains(**word)).collect();
        assert_eq!(found.len(), if *name == "publish" { 4 } else { 0 }, "{name}: {found:?}");
        assert!(!text.contains("continue-on-error") && !text.contains("always()"), "{name}");
    }
    // Each job needs the one before it.
    assert!(jobs[1].1.contains("needs: test\n") && jobs[2].1.contains("needs: build\n"));
    // The commit of an action cannot be replaced, its tag can.
    let actions: Vec<_> = WORKFLOW.lines().filter_map(|line| line.trim().strip_prefix("- uses: ")).collect();
    assert!(actions.len() >= 4, "{actions:?}");
    for action in actions {
        let (_, commit) = action.split_once('@').unwrap();
        let commit = commit.split(" # v").next().unwrap();
        assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{action}");
    }
}

/// `rollout::one_apply`: a test in `rollout.rs`; `layouts::`: all tests of a module.
#[test]
fn each_test_of_compatibility_table_exists() {
    let (_, table) = PAGE.split_once("\n## Compatibility\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let mut count = 0;
    for line in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")).skip(1) {
        let tests: Vec<_> = line.split('`').skip(1).step_by(2).filter(|span| span.contains("::")).collect();
        let is_untested = ["not tested", "not supported"].iter().any(|word| line.contains(word));
        assert!(is_untested || !tests.is_empty(), "no test: {line}");
        for test in tests {
            let (module, name) = test.rsplit_once("::").unwrap();
            let file = format!("{}.rs", module.replace("::", "/"));
            let files = ["e2e", "ssh"].map(|program| folder.join(program).join(&file));
            let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
            let text = text.unwrap_or_else(|| panic!("no file has the tests {module}"));
            assert!(name.is_empty() || text.contains(&format!("fn {name}()")), "no test {test}");
            count += 1;
        }
    }
    assert!(count > 8, "{count} tests");
}
