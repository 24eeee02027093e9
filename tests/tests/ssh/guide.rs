//! docs/guides/troubleshooting.md lists every error that the fault tests produce, with its title, in the section of its code.

use std::{fs, path::Path};

use grit_testkit::page;

const GUIDE: &str = include_str!("../../../docs/guides/troubleshooting.md");

/// Title and code of a diagnostic.
fn shown(snapshot: &str) -> (&str, &str) {
    let body = snapshot.splitn(3, "---\n").nth(2).unwrap();
    (body.lines().next().unwrap(), body.trim_end().rsplit_once("Code: ").unwrap().1)
}

#[test]
fn guide_lists_every_fault_with_title_and_code() {
    let sections = page::titles(GUIDE);
    let mut count = 0;
    for folder in ["snapshots", "faults/snapshots"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ssh").join(folder);
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // A failed test leaves a file `.snap.new`.
            if path.extension().is_some_and(|it| it == "snap") {
                let text = fs::read_to_string(&path).unwrap();
                let (title, code) = shown(&text);
                assert!(sections[code].contains(title), "{}: {title}, {code}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 80, "{count} faults");
}
