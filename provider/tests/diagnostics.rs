//! `explain` is the one place that chooses the texts of diagnostics, and the guides describe each of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use grit_testkit::page;

/// Adds the lines of all files below `directory` that create a problem.
fn find(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_allowed = path.ends_with("explain");
        if is_allowed {
            continue;
        } else if path.is_dir() {
            find(&path, found);
        } else {
            let source = fs::read_to_string(&path).unwrap();
            let lines = source.lines().zip(1..).filter(|(line, _)| line.contains("Problem::new("));
            found.extend(lines.map(|(line, number)| format!("{}:{number}: {}", path.display(), line.trim())));
        }
    }
}

#[test]
fn only_explain_creates_diagnostics() {
    let mut found = Vec::new();
    find(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(
        found.is_empty(),
        "add a function to a module of `explain` that returns the problem:\n{}",
        found.join("\n")
    );
}

/// The files with texts, without those of tests: of `explain`, and of the framework.
fn explain_sources() -> Vec<String> {
    let mut directories = ["src/explain", "plugin/src/problem"]
        .map(|it| Path::new(env!("CARGO_MANIFEST_DIR")).join(it))
        .to_vec();
    let mut sources = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
                sources.push(fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(sources.len() > 15);
    sources
}

/// The codes: the name of each variant of `Code`, with its identifier.
fn codes() -> BTreeMap<String, String> {
    let source =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/explain/code.rs")).unwrap();
    let arms = source.lines().filter_map(|line| {
        let (name, identifier) = line.trim().strip_prefix("Self::")?.split_once(" => \"")?;
        Some((name.to_owned(), identifier.strip_suffix("\",")?.to_owned()))
    });
    arms.collect()
}

/// The titles of the diagnostics as literals in the sources, each with its code: `Code::X, "title"`, `Code::X, format!("title")`,
/// `invalid("title"`, and in the framework `new("x", "title"`. Placeholders become `…`.
fn titles() -> BTreeSet<(String, String)> {
    let codes = codes();
    let mut found = BTreeSet::new();
    for source in explain_sources() {
        let with_code = source.split("Code::").skip(1).filter_map(|rest| {
            let (name, rest) = rest.split_once(',')?;
            Some((codes.get(name)?.clone(), rest))
        });
        let invalid = source.split(" invalid(").skip(1).map(|rest| ("invalid_config".to_owned(), rest));
        let of_framework = source.split("Problem::new(").skip(1).filter_map(|rest| {
            let (code, rest) = rest.trim_start().strip_prefix('"')?.split_once("\",")?;
            Some((code.to_owned(), rest))
        });
        for (code, rest) in with_code.chain(invalid).chain(of_framework) {
            let rest = rest.trim_start();
            let rest = rest.strip_prefix("format!(").unwrap_or(rest).trim_start();
            let Some(title) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) else {
                continue;
            };
            let mut text = String::new();
            for (position, part) in title.split('{').enumerate() {
                text += if position == 0 { "" } else { "…" };
                text += part.split_once('}').map_or(part, |(_, after)| after);
            }
            // Parts of sentences also follow a code.
            let is_title = text.starts_with(|c: char| c.is_uppercase() || matches!(c, '`' | '…'))
                && !text.contains("… …")
                && !text.contains([':', '.']);
            if is_title {
                found.insert((code.clone(), text));
            }
        }
    }
    assert!(found.len() > 60, "{found:#?}");
    found
}

#[test]
fn troubleshooting_guide_has_every_code_and_title() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/troubleshooting.md");
    let guide = fs::read_to_string(path).unwrap();
    let sections = page::titles(&guide);
    let described: BTreeSet<_> = sections.keys().map(|code| (*code).to_owned()).collect();
    assert_eq!(described, codes().into_values().collect::<BTreeSet<_>>(), "one section for each code");
    let listed: BTreeSet<_> = sections
        .iter()
        .flat_map(|(code, titles)| titles.iter().map(|title| ((*code).to_owned(), (*title).to_owned())))
        .collect();
    let missing: Vec<_> = titles().difference(&listed).cloned().collect();
    assert!(missing.is_empty(), "docs/guides/troubleshooting.md does not have these titles:\n{missing:#?}");
    // `titles` does not find a title that a function receives.
    let sources = explain_sources();
    let is_used =
        |title: &str| sources.iter().any(|source| title.split('…').all(|part| source.contains(part)));
    let unknown: Vec<_> = listed.iter().filter(|(_, title)| !is_used(title)).collect();
    assert!(unknown.is_empty(), "no diagnostic has these titles:\n{unknown:#?}");
}
