//! Events of the provider's processes, one line each, in the file named by `LAB_JOURNAL`.

use std::{fs::OpenOptions, io::Write as _, path::Path};

use serde::Deserialize;
use serde_json::{Value as Json, json};

/// The variable with the path; without it no event is written.
pub const VARIABLE: &str = "LAB_JOURNAL";

/// One line of the journal.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// The process that wrote it.
    pub pid: u32,
    /// What happened, for example `create_start`.
    pub event: String,
    /// Other fields.
    #[serde(flatten)]
    pub fields: Json,
}

/// Adds a line: `event`, this process's id, and the members of `fields`.
#[expect(clippy::needless_pass_by_value, reason = "callers build it on the spot")]
pub fn write(event: &str, fields: Json) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let mut line = json!({"pid": std::process::id(), "event": event});
    if let (Some(line), Some(fields)) = (line.as_object_mut(), fields.as_object()) {
        line.extend(fields.clone());
    }
    // One write per line, so that lines of several processes do not mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        tracing::error!(%error, "cannot write the journal");
    }
}

/// All complete lines so far. A missing journal is empty.
pub fn read(path: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
