//! The fields of the log: a value has the same name in all log lines of the three crates.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::{collections::BTreeSet, fs, path::Path};

/// The names, and what they stand for if the name does not say it.
const FIELDS: &[(&str, &str)] = &[
    ("backtrace", ""),
    ("calls", "number of running calls"),
    ("delay", "until the next attempt"),
    ("drained_by", "id of the drain that the wrapper carries out"),
    ("error", ""),
    ("failures", "number of consecutive failed calls"),
    ("forced", "the drain became forceful at its deadline"),
    ("forceful", "the request is for a forceful shutdown"),
    ("host", ""),
    ("joined", "another request had started the shutdown"),
    ("key_type", "of a host key"),
    ("left", "number of running jobs, and the oldest one"),
    ("level", ""),
    ("location", "of a panic"),
    ("manager", "key of the runner manager"),
    ("missing", "the condition that is not met"),
    ("outcome", ""),
    ("problems", "of a shutdown in progress, from the wrapper"),
    ("reason", ""),
    ("status", "of the runner"),
    ("uid", ""),
    ("username", ""),
    ("waited", "since the start of the operation"),
];

/// Adds the fields of each log line in a text: what stands between the macro and its message.
fn collect(text: &str, found: &mut BTreeSet<String>) {
    for level in ["debug", "info", "warn", "error"] {
        for line in text.split(&format!("tracing::{level}!(")).skip(1) {
            let fields = line.split('"').next().unwrap_or_default().split(',');
            let names = fields.map(|field| field.split('=').next().unwrap_or_default().trim());
            let is_name =
                |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            found.extend(names.filter(is_name).map(str::to_owned));
        }
    }
}

fn read(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            collect(&fs::read_to_string(&path).unwrap(), found);
        }
    }
}

#[test]
fn log_fields_are_those_of_the_list() {
    let mut found = BTreeSet::new();
    for crate_folder in ["src", "plugin/src", "ssh/src"] {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(crate_folder), &mut found);
    }
    let listed: BTreeSet<_> = FIELDS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, listed, "use the name that other lines have for the same value, or add a name here");
}
