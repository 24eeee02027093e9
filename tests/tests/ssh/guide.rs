//! The messages of connection failures: `messages.txt` has their wording, and docs/guides/troubleshooting.md their titles.

use std::{fs, path::Path};

use grit_testkit::{gallery, page};

const GUIDE: &str = include_str!("../../../docs/guides/troubleshooting.md");
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ssh");

/// Asserts that the gallery shows this message.
#[track_caller]
pub(crate) fn assert_message(name: &str, message: impl AsRef<str>) {
    gallery::assert_shown(&Path::new(TESTS).join("messages.txt"), name, message.as_ref());
}

#[test]
fn guide_lists_every_fault_with_title_and_code() {
    let titles = page::titles(GUIDE);
    let sources = ["", "faults"].map(|folder| fs::read_dir(Path::new(TESTS).join(folder)).unwrap());
    let files = sources.into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let sources: String = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    for (name, message) in gallery::sections(include_str!("messages.txt")) {
        let (title, code) = (message.lines().next().unwrap(), message.rsplit_once("Code: ").unwrap().1);
        assert!(titles[code].contains(title), "{name}: {title}, {code}");
        assert!(sources.contains(&format!("\"{name}\"")), "no test compares {name}");
    }
}
