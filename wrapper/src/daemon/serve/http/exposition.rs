//! Prometheus text format.

use std::{
    fmt::{Display, Write},
    time::SystemTime,
};

/// The text of a metrics response. Each metric family is written once, followed by its samples.
#[derive(Debug, Default)]
pub(super) struct MetricsText(String);

impl MetricsText {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, "gauge", help);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) {
        self.family(name, "counter", help);
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _infallible = writeln!(self.0, "{name}{labels} {value}");
    }

    /// A family with one gauge, whose value is a time.
    pub(super) fn moment(&mut self, name: &str, help: &str, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.gauge(name, help);
        self.sample(name, &[], format_args!("{}.{:03}", since.as_secs(), since.subsec_millis()));
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut page = MetricsText::default();
        page.sample("x", &[("a", "b\"} 7\n\\")], 1);
        assert_eq!(page.into_text(), "x{a=\"b\\\"} 7\\n\\\\\"} 1\n");
    }
}
