//! `cargo xtask fuzz`: runs the libFuzzer targets of tests/fuzz/ with a stable compiler, and without sanitizers, which safe code does not need.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail, ensure};

use crate::steps::{cargo, root, run as execute};

/// What cargo-fuzz passes to a nightly compiler, except the sanitizer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (mut seconds, mut wanted) = (60, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                seconds = number.context("--seconds needs a number")?;
            }
            option if option.starts_with('-') => {
                bail!("{option} is not an option of fuzz; see `cargo xtask help`")
            }
            target => wanted.push(target),
        }
    }
    let folder = root().join("tests/fuzz");
    let mut targets = targets(&folder)?;
    for name in &wanted {
        ensure!(
            targets.iter().any(|target| target == name),
            "{name} is not a target: {}",
            targets.join(", ")
        );
    }
    targets.retain(|target| wanted.is_empty() || wanted.contains(&target.as_str()));
    // With a target, the flags do not apply to build scripts.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cargo(&["build", "--target", &host]);
    // The versions of the workspace. Only libfuzzer-sys, which has an exact version, and its two dependencies are added.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    // Not the target directory of the workspace: with other flags, nothing is shared.
    build.current_dir(&folder).env("RUSTFLAGS", FLAGS).env_remove("CARGO_TARGET_DIR");
    execute(&mut build)?;
    for target in targets {
        println!("==> {target}: {seconds} s");
        let corpus = folder.join("corpus").join(&target);
        fs::create_dir_all(&corpus)?;
        if target == "private_key" && !corpus.join("ed25519").exists() {
            let mut key = Command::new("ssh-keygen");
            key.args(["-q", "-t", "ed25519", "-N", "geheim", "-a", "1", "-f"]);
            execute(key.arg(corpus.join("ed25519")))?;
        }
        let mut fuzz = Command::new(folder.join("target").join(&host).join("debug").join(&target));
        fuzz.args(["-max_len=16384", "-timeout=20", &format!("-max_total_time={seconds}")]);
        execute(fuzz.arg(&corpus).current_dir(&folder))?;
    }
    Ok(())
}

fn targets(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets"))? {
        targets.extend(entry?.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    targets.sort();
    Ok(targets)
}
