//! A gallery: the texts of many tests in one file, each below a line `## NAME`, without empty lines.

use std::{collections::BTreeMap, env, fs, path::Path};

/// The sections of a gallery: name and text.
///
/// # Panics
///
/// If a section has no text.
#[must_use]
pub fn sections(gallery: &str) -> BTreeMap<&str, &str> {
    let parts = gallery.split("\n## ").skip(1).map(|part| part.split_once('\n').expect("a text"));
    parts.map(|(name, text)| (name, text.trim_end())).collect()
}

/// Asserts that a gallery has this text; with `GRIT_UPDATE_GENERATED`, writes it.
///
/// # Panics
///
/// If the gallery has another text, or cannot be written.
#[track_caller]
pub fn assert_shown(gallery: &Path, name: &str, text: &str) {
    let text = text.trim_end().replace("\n\n", "\n");
    let update = || -> std::io::Result<()> {
        // Tests run at the same time, in several processes.
        let lock = fs::File::open(gallery)?;
        lock.lock()?;
        let page = fs::read_to_string(gallery)?;
        let mut all = sections(&page);
        all.insert(name, &text);
        let head = page.split("\n## ").next().unwrap_or_default();
        let body: String = all.iter().map(|(name, text)| format!("\n## {name}\n{text}\n")).collect();
        fs::write(gallery, head.to_owned() + &body)
    };
    if env::var_os("GRIT_UPDATE_GENERATED").is_some() {
        update().unwrap_or_else(|error| panic!("{}: {error}", gallery.display()));
        return;
    }
    let page = fs::read_to_string(gallery).unwrap_or_default();
    let shown = sections(&page).get(name).copied().unwrap_or_default();
    assert!(
        shown == text,
        "{name} in {}, which GRIT_UPDATE_GENERATED=1 writes:\n{shown}\n--- is now:\n{text}",
        gallery.display()
    );
}
