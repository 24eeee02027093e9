//! The lists of attributes on a page, read: ``- `name` (type, required, sensitive): text``, with nested attributes indented below.

use std::{collections::BTreeMap, fs, path::Path};

/// One attribute on a page.
#[derive(Debug, Default, Clone)]
pub(crate) struct Entry {
    /// The title of the section, `Arguments` or `Attributes`.
    pub(crate) section: String,
    /// What stands in the parentheses.
    pub(crate) meta: String,
    /// What stands behind them, with the lines and plain items below that belong to it.
    pub(crate) text: String,
    pub(crate) children: BTreeMap<String, Entry>,
}

/// A file of this repository.
pub(crate) fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The attributes of a page, by name.
pub(crate) fn entries(page: &str) -> BTreeMap<String, Entry> {
    let mut top = BTreeMap::new();
    // From the outermost to the innermost open entry: its indentation, and the names that share its text.
    let mut open: Vec<(usize, Vec<String>)> = Vec::new();
    let (mut section, mut required) = ("", false);
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim();
            open.clear();
            required = false;
            continue;
        }
        if matches!(line, "Required:" | "Optional:") {
            required = line == "Required:";
            open.clear();
            continue;
        }
        if !matches!(section, "Arguments" | "Attributes") || line.trim().is_empty() {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if let Some((heads, text)) = heads(line.trim_start()) {
            while open.last().is_some_and(|(outer, _)| *outer >= indent) {
                open.pop();
            }
            for (name, meta) in &heads {
                let entry = Entry {
                    section: section.to_owned(),
                    // Under "Required:", what stands there is required without a word of its own.
                    meta: if required && indent == 0 { with_required(meta) } else { (*meta).to_owned() },
                    text: text.to_owned(),
                    children: BTreeMap::new(),
                };
                level(&mut top, &open).insert((*name).to_owned(), entry);
            }
            open.push((indent, heads.iter().map(|(name, _)| (*name).to_owned()).collect()));
        } else {
            // A further line of an entry, or an item that is no attribute: it belongs to the innermost entry that it is indented under.
            while open.last().is_some_and(|(outer, _)| *outer >= indent) {
                open.pop();
            }
            let Some((last, names)) = open.pop() else { continue };
            for name in &names {
                if let Some(entry) = level(&mut top, &open).get_mut(name) {
                    entry.text += &format!(" {}", line.trim());
                }
            }
            open.push((last, names));
        }
    }
    top
}

/// The parentheses of an attribute that stands under "Required:".
fn with_required(meta: &str) -> String {
    match meta.split_once(", ") {
        Some((kind, rest)) => format!("{kind}, required, {rest}"),
        None => format!("{meta}, required"),
    }
}

/// The entries among which a new one belongs.
fn level<'a>(
    top: &'a mut BTreeMap<String, Entry>,
    open: &[(usize, Vec<String>)],
) -> &'a mut BTreeMap<String, Entry> {
    let mut level = top;
    for (_, names) in open {
        level = &mut level.entry(names[0].clone()).or_default().children;
    }
    level
}

/// The names and parentheses of an item, and its text; `None` when the line is no attribute's.
fn heads(line: &str) -> Option<(Vec<(&str, &str)>, &str)> {
    let mut rest = line.strip_prefix("- ")?;
    let mut heads = Vec::new();
    loop {
        let (name, after) = rest.strip_prefix('`')?.split_once("` (")?;
        let (meta, after) = after.split_once(')').filter(|(meta, _)| *meta != "default")?;
        heads.push((name, meta));
        match after.strip_prefix(" and ").or_else(|| after.strip_prefix(", ")) {
            Some(next) => rest = next,
            None => return Some((heads, after.strip_prefix(':')?.trim())),
        }
    }
}

/// The default that a text names: ``Default `3h` ``, `Default 64.`, ``(default 22)``, or `` `graceful` (default)``.
pub(crate) fn default_in(text: &str) -> Option<String> {
    if let Some((_, rest)) = text.split_once("Default") {
        let rest = rest.trim_start_matches(':').trim();
        let value = match rest.strip_prefix('`') {
            Some(quoted) => quoted.split('`').next(),
            None => rest.split(['.', ';', ',', '(']).next(),
        };
        return value.map(|value| value.trim().to_owned());
    }
    let (before, rest) = text.split_once("(default")?;
    match rest.strip_prefix(')') {
        Some(_) => before.trim_end().trim_end_matches('`').rsplit('`').next().map(str::to_owned),
        None => rest.split(')').next().map(|value| value.trim_start_matches(':').trim().to_owned()),
    }
}
