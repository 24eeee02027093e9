//! Paths and links in the documents lead to files and headings that exist.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Registry pages have absolute links to files that the registry does not show.
const REPOSITORY: [&str; 2] = [
    "https://github.com/runner-tools/terraform-provider-grit/blob/main/",
    "https://github.com/runner-tools/terraform-provider-grit/tree/main/",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The documents: those in the root directory, and all below `docs/`.
fn documents() -> Vec<PathBuf> {
    let mut found = markdown(&root());
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        found.extend(markdown(&directory));
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        directories.extend(entries.filter(|path| path.is_dir()));
    }
    assert!(found.len() > 15, "{found:?}");
    found
}

fn markdown(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// A document without its blocks of code.
fn prose(document: &Path) -> String {
    let text = fs::read_to_string(document).unwrap();
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced && !line.starts_with("    ")
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The anchors of the headings, as GitHub makes them.
fn anchors(document: &Path) -> Vec<String> {
    let text = prose(document);
    let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_matches(['#', ' ']));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    titles
        .map(|title| title.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"))
        .collect()
}

#[test]
fn every_document_link_has_a_target() {
    let (mut count, mut broken) = (0, Vec::new());
    for document in documents() {
        let text = prose(&document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let own = REPOSITORY.iter().find_map(|prefix| link.strip_prefix(prefix));
            if own.is_none() && link.contains("://") {
                continue;
            }
            let (path, anchor) = own.unwrap_or(link).split_once('#').unwrap_or((own.unwrap_or(link), ""));
            let target = match own {
                Some(_) => root().join(path),
                None if path.is_empty() => document.clone(),
                None => document.parent().unwrap().join(path),
            };
            count += 1;
            if !target.exists() || !anchor.is_empty() && !anchors(&target).iter().any(|found| found == anchor)
            {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "these links have no target:\n{}", broken.join("\n"));
    assert!(count > 50, "{count} links");
}

#[test]
fn every_path_in_developer_guides_exists() {
    let (mut count, mut missing) = (0, Vec::new());
    let guides = ["CONTRIBUTING.md", "docs/architecture.md"].map(|guide| root().join(guide));
    for guide in guides.into_iter().chain(markdown(&root().join("docs/adr"))) {
        let text = prose(&guide);
        for span in text.split('`').skip(1).step_by(2) {
            // `docs/`, `provider/src/main.rs`: not a command, and in a directory of the repository.
            let Some((first, _)) = span.split_once('/') else { continue };
            if span.contains([' ', '*']) || !root().join(first).is_dir() {
                continue;
            }
            count += 1;
            if !root().join(span).exists() {
                missing.push(format!("{}: {span}", guide.display()));
            }
        }
    }
    assert!(missing.is_empty(), "these paths do not exist:\n{}", missing.join("\n"));
    assert!(count > 60, "{count} paths");
}
