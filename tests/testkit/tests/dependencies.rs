//! The dependencies meet the rules of deny.toml that can be checked without `cargo deny` and a network. Advisories are not checked.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, path::Path, process::Command};

use serde_json::Value as Json;

struct Dependencies {
    /// Name, version, licence and source; without the packages of this workspace.
    packages: Vec<Json>,
    rules: toml::Table,
}

impl Dependencies {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        // Only dependencies of this platform: those of other platforms were not downloaded.
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        command.args(["metadata", "--format-version=1", "--locked", "--offline", "--all-features"]);
        let output = command.args(["--filter-platform", &platform]).current_dir(&root).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Json = serde_json::from_slice(&output.stdout).unwrap();
        let used: BTreeSet<_> = metadata["resolve"]["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| &node["id"])
            .map(text)
            .collect();
        let packages = metadata["packages"].as_array().unwrap().iter();
        let packages = packages.filter(|package| used.contains(&text(&package["id"])));
        let packages: Vec<_> = packages.filter(|package| !package["source"].is_null()).cloned().collect();
        assert!(packages.len() > 100, "{} packages are not what this project is made of", packages.len());
        let rules = std::fs::read_to_string(root.join("deny.toml")).unwrap().parse().unwrap();
        Self { packages, rules }
    }

    fn list(&self, table: &str, key: &str) -> Vec<&toml::Value> {
        self.rules[table][key].as_array().unwrap().iter().collect()
    }
}

fn text(json: &Json) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

/// Whether a licence expression is satisfied by licences that are allowed.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut at = 0;
    let value = any(&words, &mut at, allowed);
    assert_eq!(at, words.len(), "not a licence expression: {expression}");
    value
}

fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut value = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        value |= all(words, at, allowed);
    }
    value
}

fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut value = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        value &= one(words, at, allowed);
    }
    value
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let value = any(words, at, allowed);
        assert_eq!(words.get(*at), Some(&")"), "{words:?}");
        *at += 1;
        return value;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return allowed.contains(&format!("{word} WITH {exception}"));
    }
    allowed.contains(*word)
}

#[test]
fn used_licences_equal_allowed_licences() {
    let dependencies = Dependencies::read();
    let allowed: BTreeSet<_> = dependencies
        .list("licenses", "allow")
        .into_iter()
        .map(|it| it.as_str().unwrap().to_owned())
        .collect();
    let mut expressions = BTreeSet::new();
    for package in &dependencies.packages {
        let licence = text(&package["license"]);
        assert!(satisfied(&licence, &allowed), "{} {}: {licence:?}", package["name"], package["version"]);
        expressions.insert(licence);
    }
    for licence in &allowed {
        let is_used = expressions.iter().any(|expression| expression.contains(licence.as_str()));
        assert!(is_used, "deny.toml allows {licence}, which no dependency has");
    }
}

#[test]
fn dependencies_are_not_banned_and_from_crates_io() {
    let dependencies = Dependencies::read();
    let banned: Vec<_> =
        dependencies.list("bans", "deny").into_iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(!banned.is_empty());
    for package in &dependencies.packages {
        assert!(!banned.contains(&text(&package["name"]).as_str()), "{} is banned", package["name"]);
        let source = text(&package["source"]);
        assert_eq!(source, "registry+https://github.com/rust-lang/crates.io-index", "{}", package["name"]);
    }
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "ISC"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("MIT/GPL-3.0", true),
        ("GPL-3.0", false),
        ("", false),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
        ("GPL-3.0 OR MIT AND ISC", true),
    ] {
        assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
    }
}

/// The crate in tests/fuzz/ is not built here. Each target is one line: a call of a function that the suite also feeds.
#[test]
fn each_fuzz_target_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let manifest = read("tests/fuzz/Cargo.toml");
    let of_ssh = read("provider/ssh/src/fuzz/tests.rs");
    let of_authority = read("wrapper/authority/src/fuzz.rs");
    let manifest: toml::Table = manifest.parse().unwrap();
    let targets = manifest["bin"].as_array().unwrap();
    let files = std::fs::read_dir(root.join("tests/fuzz/fuzz_targets")).unwrap().count();
    assert_eq!(targets.len(), files, "a file of fuzz_targets is not in Cargo.toml");
    for target in targets {
        let name = target["name"].as_str().unwrap();
        let source = read(&format!("tests/fuzz/{}", target["path"].as_str().unwrap()));
        let last = source.lines().last().unwrap();
        let calls = |package: &str| {
            last == format!("libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {package}::fuzz::{name}(bytes));")
        };
        let is_tested = (calls("grit_ssh") && of_ssh.contains(&format!("super::{name},")))
            || (calls("grit_authority") && of_authority.contains(&format!("            {name}(&")));
        assert!(is_tested, "no test calls what {name} calls: {last}");
    }
}
