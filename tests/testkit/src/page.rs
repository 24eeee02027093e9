//! Parts of documents.

use std::collections::{BTreeMap, BTreeSet};

/// The blocks of a page in a language, in order.
#[must_use]
pub fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// The only block of a page in a language.
///
/// # Panics
///
/// If the page has none, or several.
#[must_use]
#[track_caller]
pub fn block<'p>(page: &'p str, language: &str) -> &'p str {
    let blocks = blocks(page, language);
    let [block] = blocks[..] else { panic!("{} blocks in {language}", blocks.len()) };
    block
}

/// The titles of diagnostics on the page of troubleshooting, by the code of their section. They are the first cells of its table; a cell can have
/// several titles.
///
/// # Panics
///
/// If a section has no text.
#[must_use]
pub fn titles(page: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let sections = page.split("\n## ").skip(1).map(|section| section.split_once('\n').expect("a section"));
    sections.map(|(code, section)| (code, section_titles(section))).collect()
}

fn section_titles(section: &str) -> BTreeSet<&str> {
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split(", ")).filter(|cell| !matches!(*cell, "title" | "---")).collect()
}
