//! Above each block of code in the documents, a comment names the test that runs or validates it, or the reason why no test does:
//! `<!-- test: NAME -->`, `<!-- no test: REASON -->`, `<!-- example: FILE -->`. A block in the language `text` needs none.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A block of code: the line above it, its language, which may be empty, and its text.
#[derive(Debug)]
struct Block {
    marker: String,
    language: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of a document: fenced ones, and paragraphs that are indented by four spaces.
fn blocks(document: &Path) -> Vec<Block> {
    let page = fs::read_to_string(document).unwrap();
    let mut found: Vec<Block> = Vec::new();
    let (mut is_fenced, mut is_indented) = (false, false);
    // The last line, and the last one with text.
    let (mut previous, mut marker) = ("", "");
    for line in page.lines() {
        let mut begin = |language: &str| {
            let (marker, language) = (marker.trim().to_owned(), language.to_owned());
            found.push(Block { marker, language, text: String::new() });
        };
        let fence = line.trim_start().strip_prefix("```");
        let code = line.strip_prefix("    ").filter(|_| is_indented || previous.is_empty());
        if let Some(language) = fence {
            is_fenced = !is_fenced;
            is_indented = false;
            if is_fenced {
                begin(language);
            }
        } else if is_fenced {
            found.last_mut().unwrap().text += &format!("{line}\n");
        } else if let Some(code) = code {
            // Empty lines do not end an indented block.
            if !is_indented {
                is_indented = true;
                begin("");
            }
            found.last_mut().unwrap().text += &format!("{code}\n");
        } else {
            is_indented &= line.is_empty();
        }
        previous = line;
        if !line.is_empty() {
            marker = line;
        }
    }
    assert!(!is_fenced, "{}: a block without an end", document.display());
    found
}

/// The files of a directory with this extension.
fn files(directory: &Path, extension: &str, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.insert(path);
        }
    }
}

/// All documents for users, and CONTRIBUTING.md.
fn documents() -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<_> = ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)).into();
    for directory in ["docs", "examples"] {
        files(&root().join(directory), "md", &mut found);
    }
    assert!(found.len() > 30, "{found:?}");
    found
}

/// The functions of the tests, as text.
fn tests() -> String {
    let mut sources = BTreeSet::new();
    for directory in ["provider/tests", "wrapper/tests", "tests/tests", "tests/testkit/tests"] {
        files(&root().join(directory), "rs", &mut sources);
    }
    sources.into_iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn every_block_names_its_test() {
    let tests = tests();
    let is_known = |marker: &str| {
        let of = |kind: &str| marker.strip_prefix("<!-- ")?.strip_prefix(kind)?.strip_suffix(" -->");
        let test = of("test: ").map(|name| tests.contains(&format!("fn {name}(")));
        let example = of("example: ").map(|path| root().join(path).exists());
        test.or(example).unwrap_or_else(|| of("no test: ").is_some_and(|reason| !reason.is_empty()))
    };
    let mut wrong = Vec::new();
    for document in documents() {
        let blocks = blocks(&document).into_iter().filter(|block| block.language != "text");
        wrong.extend(blocks.filter(|block| !is_known(&block.marker)).map(|block| (document.clone(), block)));
    }
    assert!(wrong.is_empty(), "name the test of each block in a comment above it: {wrong:#?}");
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
            assert!(
                output.status.success() && errors.is_empty(),
                "{}: {errors}\n{}",
                document.display(),
                block.text
            );
        }
    }
    assert!(count > 8, "{count} blocks");
}
