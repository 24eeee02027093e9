//! What happened in a run, in words, and how often each kind of event happened.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

#[derive(Debug, Default)]
pub(super) struct Trace {
    lines: Vec<(Duration, String)>,
    pub(super) counts: BTreeMap<String, u64>,
}

impl Trace {
    pub(super) fn add(&mut self, at: Duration, line: String) {
        self.lines.push((at, line));
    }

    pub(super) fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (at, line) in &self.lines {
            let _written = writeln!(text, "t={:.3} s {line}", at.as_secs_f64());
        }
        text
    }
}
