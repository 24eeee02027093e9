//! Every block of code in the documents is run or validated by a test, or has a reason why it is not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use Check::{Output, Test, Unchecked};

/// How a block is checked.
enum Check {
    /// This test reads the document, and runs or validates the block.
    Test(&'static str),
    /// The block shows the output of a program, or a diagram.
    Output,
    /// No test reads the block, for this reason.
    Unchecked(&'static str),
}

const DOCUMENT_BLOCKS: &str = "tests/tests/e2e/document_blocks.rs";
const DRAIN_HANGS: &str = "tests/tests/e2e/drain_hangs.rs";
const HOST_KEYS: &str = "tests/tests/ssh/host_keys_guide.rs";
const MONITORING: &str = "tests/tests/e2e/monitoring.rs";
const QUICK_START: &str = "tests/tests/e2e/quick_start.rs";
const SSH_RECIPES: &str = "tests/tests/ssh/recipes.rs";
const STOP_USING: &str = "tests/tests/e2e/rollout_examples/stop_using.rs";
const TWO_DIRECTORIES: &str =
    "tests/tests/e2e/two_directories.rs runs the same commands, with -json and -auto-approve";
const FOR_DEVELOPERS: &str = "for developers; the tests cannot run themselves";

const NO_IMAGES: &str =
    "the tests have no container engine; tests/tests/e2e/container.rs runs the entry point of the recipe";

/// The blocks of each document: the beginning of each block in order, and how it is checked. Blocks below the name of an example are not
/// listed: they are that file.
const BLOCKS: &[(&str, &[(&str, Check)])] = &[
    (
        "README.md",
        &[
            ("cargo xtask demo", Unchecked(FOR_DEVELOPERS)),
            ("registry=registry.terraform.io", Test("tests/tests/e2e/example.rs")),
            ("provider \"grit\" {", Test("tests/tests/e2e/example.rs")),
        ],
    ),
    ("CONTRIBUTING.md", &[("cargo xtask test", Unchecked(FOR_DEVELOPERS))]),
    (
        "docs/actions/cancel_drain.md",
        &[(
            "terraform apply -invoke=",
            Unchecked("tests/tests/e2e/actions.rs invokes each action, with -json"),
        )],
    ),
    (
        "docs/actions/drain.md",
        &[
            (
                "terraform apply -invoke=",
                Unchecked("tests/tests/e2e/actions.rs invokes each action, with -json"),
            ),
            ("Action action.grit_drain.maintenance: blue:", Output),
        ],
    ),
    (
        "docs/actions/start.md",
        &[(
            "terraform apply -invoke=",
            Unchecked("tests/tests/e2e/actions.rs invokes each action, with -json"),
        )],
    ),
    ("docs/architecture.md", &[("Terraform ─gRPC─", Output)]),
    (
        "docs/data-sources/deployment.md",
        &[("data \"terraform_remote_state\" \"old\"", Test(DOCUMENT_BLOCKS))],
    ),
    (
        "docs/functions/managers_from_grit.md",
        &[
            ("managers_from_grit(", Test("provider/tests/docs.rs")),
            ("locals {", Test(DOCUMENT_BLOCKS)),
            ("locals {", Test(DOCUMENT_BLOCKS)),
        ],
    ),
    ("docs/functions/validate_managers.md", &[("validate_managers(", Test("provider/tests/docs.rs"))]),
    (
        "docs/guides/autoscaling.md",
        &[("install -m 755 grit-lifecycle-hook", Test("tests/tests/e2e/lifecycle_hook.rs"))],
    ),
    (
        "docs/guides/ci.md",
        &[
            ("stages: [deploy]", Test("tests/tests/e2e/ci_component.rs")),
            (".fleet-google:", Test("tests/tests/e2e/ci_component.rs")),
            ("gcloud iam", Unchecked("the tests have no Google Cloud")),
            ("two_runs: true", Test("tests/tests/e2e/ci_component.rs")),
        ],
    ),
    (
        "docs/guides/cloud.md",
        &[
            ("provider \"grit\" {", Test(QUICK_START)),
            ("terraform {", Test(QUICK_START)),
            ("terraform {", Test(QUICK_START)),
        ],
    ),
    (
        "docs/guides/drain-hangs.md",
        &[
            ("TF_LOG_PROVIDER=INFO", Test(DRAIN_HANGS)),
            ("grep 'waiting '", Test(DRAIN_HANGS)),
            ("… waiting for the runner", Output),
            ("grit-wrapper status", Test(DRAIN_HANGS)),
            ("ssh -N", Test(DRAIN_HANGS)),
            ("grit-wrapper status --address", Test(DRAIN_HANGS)),
            ("data \"grit_runner_status\"", Test(DRAIN_HANGS)),
            ("grit-wrapper drain --deadline", Test(DRAIN_HANGS)),
        ],
    ),
    (
        "docs/guides/drain-start.md",
        &[
            ("time     gitlab-runner", Output),
            ("provider \"grit\" {", Test(DOCUMENT_BLOCKS)),
            ("Warning: Jobs of blue-v1 were lost", Output),
        ],
    ),
    (
        "docs/guides/grit-modules.md",
        &[
            ("variable \"versions\" {", Test("tests/tests/e2e/modules.rs")),
            ("locals {", Test(DOCUMENT_BLOCKS)),
        ],
    ),
    ("docs/guides/health-hangs.md", &[("… waiting for a healthy runner", Output)]),
    (
        "docs/guides/host-keys.md",
        &[
            ("resource \"tls_private_key\"", Test("tests/tests/e2e/modules.rs")),
            ("#!/bin/sh", Test(HOST_KEYS)),
            ("[Unit]", Test("tests/tests/e2e/hosts_guide.rs")),
            ("provider \"grit\" {", Test("tests/tests/e2e/modules.rs")),
            ("resource \"google_compute_instance\"", Test("tests/tests/e2e/modules.rs")),
            ("#!/bin/sh", Test(HOST_KEYS)),
            ("data \"external\"", Test("tests/tests/e2e/modules.rs")),
            ("resource \"terraform_data\"", Test("tests/tests/e2e/host_key_pin.rs")),
        ],
    ),
    (
        "docs/guides/hosts.md",
        &[
            ("mkdir -p /etc/systemd/system", Test("tests/tests/e2e/hosts_guide.rs")),
            ("#cloud-config", Test("tests/tests/e2e/hosts_guide.rs")),
            ("{", Test(DOCUMENT_BLOCKS)),
        ],
    ),
    (
        "docs/guides/migration.md",
        &[
            ("grit = {", Test("tests/tests/e2e/migration.rs")),
            ("provider \"grit\" {", Test("tests/tests/e2e/migration.rs")),
            ("terraform -chdir=new apply &&", Unchecked(TWO_DIRECTORIES)),
            ("terraform apply -json", Test("tests/tests/e2e/migration.rs")),
        ],
    ),
    ("docs/guides/monitoring.md", &[("resource \"terraform_data\"", Test(MONITORING))]),
    (
        "docs/guides/quick-start.md",
        &[
            ("mkdir quick-start", Test(QUICK_START)),
            ("cat >gitlab-runner", Test(QUICK_START)),
            ("terraform {", Test(QUICK_START)),
            ("export GRIT_SSH_USERNAME", Test(QUICK_START)),
            ("terraform apply", Test(QUICK_START)),
            ("terraform destroy", Test(QUICK_START)),
        ],
    ),
    ("docs/guides/rollout.md", &[("versions = {", Test(DOCUMENT_BLOCKS))]),
    (
        "docs/guides/security.md",
        &[
            (
                "ln -s /usr/share/grit-wrapper",
                Unchecked("docs/guides/hosts.md has the same command, and its test"),
            ),
            ("restrict,port-forwarding", Test(SSH_RECIPES)),
            ("restrict,command", Test(SSH_RECIPES)),
        ],
    ),
    (
        "docs/guides/ssh.md",
        &[
            ("provider \"grit\" {", Test(DOCUMENT_BLOCKS)),
            ("provider \"grit\" {", Test(DOCUMENT_BLOCKS)),
            ("proxy_command = [\"aws\"", Test(SSH_RECIPES)),
            ("proxy_command = [\"gcloud\"", Test(SSH_RECIPES)),
            ("ssh_command = [\"gcloud\"", Test(SSH_RECIPES)),
            ("proxy_command = [\"tsh\"", Test(SSH_RECIPES)),
            ("proxy_command = [\"boundary\"", Test(SSH_RECIPES)),
            ("ssh_command = [\"boundary\"", Test(SSH_RECIPES)),
            ("proxy_command = [\"ssh\"", Test(SSH_RECIPES)),
            ("ssh_command = [\"ssh\"", Test(SSH_RECIPES)),
            ("ssh_command = [\"ssh\"", Test(SSH_RECIPES)),
        ],
    ),
    (
        "docs/guides/stop-using.md",
        &[("removed {", Test(STOP_USING)), ("terraform state rm", Test(STOP_USING))],
    ),
    (
        "docs/guides/two-directories.md",
        &[
            ("terraform -chdir=v2 apply", Unchecked(TWO_DIRECTORIES)),
            ("terraform -chdir=v1 apply", Unchecked(TWO_DIRECTORIES)),
        ],
    ),
    ("docs/performance.md", &[("cargo xtask bench", Unchecked(FOR_DEVELOPERS))]),
    (
        "docs/releases.md",
        &[
            ("git switch --detach main", Unchecked(FOR_DEVELOPERS)),
            ("provider_installation {", Test("tests/tests/e2e/dist.rs")),
        ],
    ),
    (
        "docs/wrapper/README.md",
        &[
            (
                "grit-wrapper run",
                Unchecked("the units of the package run this command, and the tests boot them"),
            ),
            ("grit-wrapper status", Test("wrapper/tests/wrapper/documented.rs")),
        ],
    ),
    ("docs/wrapper/container.md", &[("docker build", Unchecked(NO_IMAGES))]),
    (
        "docs/wrapper/draining.md",
        &[("grit-wrapper status", Test("wrapper/tests/wrapper/documented.rs")), ("exit status 1", Output)],
    ),
    (
        "docs/wrapper/health.md",
        &[("max(5 min", Unchecked("a formula; the tests in wrapper/src/runner/polls.rs check its values"))],
    ),
    (
        "docs/wrapper/metrics.md",
        &[
            ("curl http://", Test("wrapper/tests/wrapper/documented.rs")),
            ("# prometheus.yml", Test("wrapper/tests/wrapper/prometheus.rs")),
        ],
    ),
    (
        "docs/wrapper/running.md",
        &[
            (
                "# /etc/systemd/system/grit-wrapper.service.d/jobs.conf",
                Test("tests/tests/e2e/systemd_stop.rs"),
            ),
            ("# /etc/systemd/system/grit-wrapper.socket", Test("tests/tests/e2e/systemd_socket.rs")),
            ("mkdir -p /etc/systemd/system", Test("tests/tests/e2e/systemd_upgrade.rs")),
            ("mkdir -p /etc/systemd/system", Test("tests/tests/e2e/systemd_upgrade.rs")),
            ("systemctl stop gitlab-runner.service", Test("tests/tests/e2e/systemd_upgrade.rs")),
        ],
    ),
    (
        "docs/wrapper/security.md",
        &[(
            "# /etc/systemd/system/grit-wrapper.service.d/user.conf",
            Test("tests/tests/e2e/systemd_stop.rs"),
        )],
    ),
    (
        "examples/modules/prometheus/README.md",
        &[
            ("# Pass the same map", Test("tests/testkit/tests/modules.rs")),
            ("scrape_configs:", Test(MONITORING)),
            ("scrape_configs:", Test(MONITORING)),
        ],
    ),
    (
        "examples/modules/rollout/README.md",
        &[("# Two runner managers", Test("tests/testkit/tests/modules.rs"))],
    ),
    (
        "examples/modules/runner-manager-aws/README.md",
        &[("# Two runner managers", Test("tests/testkit/tests/modules.rs"))],
    ),
    (
        "examples/modules/runner-manager-google/README.md",
        &[("# Two runner managers", Test("tests/testkit/tests/modules.rs"))],
    ),
    (
        "examples/rollouts/retire-another-directory/README.md",
        &[
            ("terraform -chdir=v2 apply", Unchecked(TWO_DIRECTORIES)),
            ("terraform -chdir=v2 apply", Unchecked(TWO_DIRECTORIES)),
        ],
    ),
    (
        "examples/rollouts/two-directories/README.md",
        &[
            ("terraform -chdir=v2 apply", Unchecked(TWO_DIRECTORIES)),
            ("terraform -chdir=v1 apply", Unchecked(TWO_DIRECTORIES)),
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A block of code: its language, which may be empty, and its text.
#[derive(Debug)]
struct Block {
    language: String,
    text: String,
}

/// The blocks of a document that are not examples: fenced ones, and paragraphs that are indented by four spaces.
fn blocks(document: &str) -> Vec<Block> {
    let page = fs::read_to_string(root().join(document)).unwrap();
    let mut found: Vec<Block> = Vec::new();
    let (mut is_fenced, mut is_example, mut is_indented) = (false, false, false);
    let mut previous = "";
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            is_fenced = !is_fenced;
            is_indented = false;
            if is_fenced {
                is_example = previous.starts_with("<!-- example: ");
            }
            if is_fenced && !is_example {
                found.push(Block { language: language.to_owned(), text: String::new() });
            }
        } else if is_fenced {
            if let Some(block) = found.last_mut().filter(|_| !is_example) {
                block.text += &format!("{line}\n");
            }
        } else if let Some(code) = line.strip_prefix("    ").filter(|_| is_indented || previous.is_empty()) {
            // Empty lines do not end an indented block.
            if !is_indented {
                is_indented = true;
                found.push(Block { language: String::new(), text: String::new() });
            }
            if let Some(block) = found.last_mut() {
                block.text += &format!("{code}\n");
            }
        } else {
            is_indented &= line.is_empty();
        }
        previous = line;
    }
    assert!(!is_fenced, "{document}: a block without an end");
    found
}

/// All documents for users, and CONTRIBUTING.md.
fn documents() -> BTreeSet<String> {
    let root = root();
    let mut found: BTreeSet<_> = ["README.md", "CONTRIBUTING.md"].map(str::to_owned).into();
    let mut directories = vec![root.join("docs"), root.join("examples")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    assert!(found.len() > 30, "{found:?}");
    found
}

#[test]
fn every_block_is_checked_or_has_a_reason() {
    let mut problems = Vec::new();
    for document in documents() {
        let blocks = blocks(&document);
        let listed = BLOCKS.iter().find(|(name, _)| *name == document).map_or(&[][..], |(_, listed)| listed);
        for (position, block) in blocks.iter().enumerate() {
            let line = block.text.lines().next().unwrap_or_default().trim();
            match listed.get(position) {
                None => problems.push(format!("{document}: not listed: {line}")),
                Some((beginning, _)) if !line.starts_with(beginning) => {
                    problems.push(format!("{document}: {line}\n    is listed as: {beginning}"));
                }
                Some((_, Unchecked("") | Test(""))) => {
                    problems.push(format!("{document}: no reason: {line}"));
                }
                Some(_) => {}
            }
        }
        for (beginning, _) in listed.iter().skip(blocks.len()) {
            problems.push(format!("{document}: listed and not there: {beginning}"));
        }
    }
    problems.extend(
        BLOCKS
            .iter()
            .filter(|(name, _)| !root().join(name).exists())
            .map(|(name, _)| format!("{name}: does not exist")),
    );
    assert!(
        problems.is_empty(),
        "run or validate each block in a test, and list it in tests/testkit/tests/blocks.rs:\n{}",
        problems.join("\n")
    );
}

/// The file that is named for a block reads that document, or the example that the document shows.
#[test]
fn listed_tests_read_the_documents() {
    for (document, blocks) in BLOCKS {
        for (beginning, check) in *blocks {
            let Test(path) = check else { continue };
            let source =
                fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            let name = Path::new(document).file_name().unwrap().to_str().unwrap();
            let is_generated = path.ends_with("tests/docs.rs") || path.ends_with("modules.rs");
            assert!(
                source.contains(document) || is_generated && source.contains(name.trim_end_matches(".md")),
                "{path} does not read {document} ({beginning})"
            );
        }
    }
}

#[test]
fn every_shell_block_has_valid_syntax() {
    let mut count = 0;
    for document in documents() {
        for block in blocks(&document).into_iter().filter(|block| block.language == "sh") {
            count += 1;
            let mut shell =
                Command::new("sh").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            shell.stdin.take().unwrap().write_all(block.text.as_bytes()).unwrap();
            let output = shell.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && errors.is_empty(), "{document}: {errors}\n{}", block.text);
        }
    }
    assert!(count > 8, "{count} blocks");
}
