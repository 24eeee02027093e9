//! The workflows, and the tables of docs/releases.md.
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

/// The words of a job that give it a right.
const RIGHTS: [&str; 6] = [
    "environment: ",
    "secrets.",
    "github.token",
    "contents: write",
    "id-token: write",
    "attestations: write",
];

#[test]
fn each_release_job_has_only_its_rights() {
    let expected: [(&str, &[&str]); 5] = [
        ("test", &[]),
        ("build", &[]),
        ("sign", &["environment: ", "secrets."]),
        ("attest", &["id-token: write", "attestations: write"]),
        ("publish", &["github.token", "contents: write"]),
    ];
    let jobs = jobs();
    let names: Vec<_> = jobs.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, expected.map(|(name, _)| name));
    for ((name, text), (_, rights)) in jobs.iter().zip(expected) {
        let found: Vec<_> = RIGHTS.into_iter().filter(|right| text.contains(right)).collect();
        assert_eq!(found, rights, "{name}");
        let writes = rights.iter().filter(|right| right.ends_with(": write")).count();
        assert_eq!(text.matches(": write").count(), writes, "{name}");
        assert!(text.contains("\n    permissions:"), "{name}");
        assert!(!text.contains("continue-on-error") && !text.contains("always()"), "{name}");
    }
    // Each job needs the one before it.
    for pair in jobs.windows(2) {
        assert!(pair[1].1.contains(&format!("    needs: {}\n", pair[0].0)), "{}", pair[1].0);
    }
}

/// A build script of a dependency, or a program that is linked with it, could use the key. `release_is_complete_and_reproducible` runs the step.
#[test]
fn signing_job_runs_only_programs_of_the_system() {
    for (name, text) in jobs() {
        let with_secrets: Vec<_> =
            text.split("\n      - ").filter(|step| step.contains("secrets.")).collect();
        if name != "sign" {
            assert!(with_secrets.is_empty(), "{name}");
            continue;
        }
        let [step] = with_secrets[..] else { panic!("{with_secrets:?}") };
        assert!(step.contains("gpg --batch --local-user "), "{step}");
        for word in ["cargo", "rustup", "rustc", "checkout", "xtask", "chmod", "tools/", "./"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
}

/// The name and the text of each workflow.
fn workflows() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.github/workflows");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.map(|path| (named(&path), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn workflows_build_locked_with_the_pinned_toolchain() {
    let alias = include_str!("../../../.cargo/config.toml");
    assert!(alias.contains("\nxtask = \"run --locked "), "{alias}");
    let toolchain = WORKFLOW.lines().find(|line| line.starts_with("  RUST: ")).unwrap();
    let workflows = workflows();
    assert!(workflows.len() >= 2, "{workflows:?}");
    for (name, text) in workflows {
        let commands = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.trim().starts_with('#'));
            lines
                .filter(|line| line.split_whitespace().any(|word| word == "cargo"))
                .map(str::to_owned)
                .collect()
        };
        assert!(text.contains(toolchain) && !commands(&text).is_empty(), "{name}");
        for command in commands(&text) {
            assert!(command.contains("cargo xtask ") || command.contains(" --locked "), "{name}: {command}");
        }
        let (_, jobs) = text.split_once("\njobs:\n").unwrap();
        for job in jobs.split("\n\n").filter(|job| !commands(job).is_empty()) {
            assert!(job.contains("rustup default \"$RUST\"\n"), "{name}: {job}");
        }
    }
}

/// The newest version of a package can be another one tomorrow. Packages of the distribution are signed, and not more than updated.
#[test]
fn workflows_install_pinned_versions() {
    for (name, text) in workflows() {
        for word in ["snap install", "pip install", "npm install", "curl ", "wget ", "cargo install"] {
            let lines = text.lines().filter(|line| line.contains(word));
            let unpinned: Vec<_> = lines.filter(|line| !line.contains("--version ")).collect();
            assert!(unpinned.is_empty(), "{name}: {unpinned:?}");
        }
    }
}

#[test]
fn workflows_have_no_rights_by_default_and_pinned_actions() {
    for (name, text) in workflows() {
        assert!(text.contains("\npermissions: {}\n"), "{name}");
        // The commit of an action cannot be replaced, its tag can.
        let actions: Vec<_> = text
            .lines()
            .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses: "))
            .collect();
        assert!(!actions.is_empty(), "{name}");
        for action in actions {
            let (_, commit) = action.split_once('@').unwrap();
            let commit = commit.split(" # v").next().unwrap();
            assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{action}");
        }
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
