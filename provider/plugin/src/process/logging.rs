//! The log in go-plugin's format: one JSON object per line on stderr, with the keys of go-hclog.
//!
//! Terraform reads the level only from this format, and crashes if the value of an `@` key is not a string.

use std::{fmt::Write as _, io::Write as _};

use serde_json::{Map, Value as Json};
use time::{OffsetDateTime, format_description::FormatItem, macros::format_description};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};
use tracing_subscriber::{
    Layer, filter::Targets, layer::Context, layer::SubscriberExt, registry::LookupSpan,
    util::SubscriberInitExt,
};

/// go-plugin splits lines at 64 KiB, and the parts are not valid JSON.
const MAX_LOG_LINE: usize = 60 << 10;

/// The characters of a too long message that are kept: JSON may need six bytes for one.
const CUT_MESSAGE_CHARS: usize = 8 << 10;

/// The level in the first of `TF_LOG_PROVIDER_<NAME>`, `TF_LOG_PROVIDER` and `TF_LOG` that is set; off if none is.
pub(super) fn level(name: &str, variable: impl Fn(&str) -> Option<String>) -> LevelFilter {
    let own = format!("TF_LOG_PROVIDER_{}", name.to_uppercase().replace('-', "_"));
    let asked =
        [own.as_str(), "TF_LOG_PROVIDER", "TF_LOG"].into_iter().find_map(variable).unwrap_or_default();
    match asked.to_lowercase().as_str() {
        "" | "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        // "JSON" and unknown values mean the finest level, as in Terraform.
        _ => LevelFilter::TRACE,
    }
}

/// Starts logging, unless the level is off. Libraries log too much at debug and trace: those of this crate and `quiet` only warn.
pub(super) fn init(level: LevelFilter, quiet: &[&str]) {
    if level == LevelFilter::OFF {
        return;
    }
    let libraries = level.min(LevelFilter::WARN);
    let ours = ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls", "tokio_rustls"];
    let quiet = ours.iter().chain(quiet).map(|library| (*library, libraries));
    let filter = Targets::new().with_default(level).with_targets(quiet);
    // Fails only if the program has set another subscriber.
    let _ = tracing_subscriber::registry().with(filter).with(Hclog).try_init();
}

struct Hclog;

/// The fields of a span, which its events repeat.
struct SpanFields(Map<String, Json>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Hclog {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(fields.values));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields(outer)) = span.extensions().get() {
                fields.values.extend(outer.clone());
            }
        }
        event.record(&mut fields);
        let line =
            line(event.metadata().level(), event.metadata().target(), OffsetDateTime::now_utc(), fields);
        // A failed write to stderr cannot be reported.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// One line of the log.
fn line(level: &Level, module: &str, now: OffsetDateTime, fields: Fields) -> String {
    const TIMESTAMP: &[FormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    let Fields { message, values } = fields;
    let level = match *level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    };
    // Last, so that no field overwrites these.
    let complete = |mut values: Map<String, Json>, message: String| {
        values.insert("@level".into(), level.into());
        values.insert("@message".into(), message.into());
        values.insert("@module".into(), module.into());
        values.insert("@timestamp".into(), now.format(TIMESTAMP).unwrap_or_default().into());
        format!("{}\n", Json::Object(values))
    };
    let start: String = message.chars().take(CUT_MESSAGE_CHARS).collect();
    let line = complete(values, message);
    if line.len() <= MAX_LOG_LINE {
        return line;
    }
    complete(Map::from_iter([("cut".to_owned(), Json::Bool(true))]), start)
}

/// The fields of an event or span, without `message`.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    values: Map<String, Json>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Json>) {
        self.values.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" { self.message = value.to_owned() } else { self.put(field, value) }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.put(field, format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level_of(variables: &[(&str, &str)]) -> LevelFilter {
        level("grit", |key| {
            variables.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn most_specific_log_variable_wins() {
        assert_eq!(level_of(&[]), LevelFilter::OFF);
        assert_eq!(level_of(&[("TF_LOG", "warn")]), LevelFilter::WARN);
        assert_eq!(level_of(&[("TF_LOG", "warn"), ("TF_LOG_PROVIDER", "INFO")]), LevelFilter::INFO);
        assert_eq!(
            level_of(&[("TF_LOG", "trace"), ("TF_LOG_PROVIDER", "info"), ("TF_LOG_PROVIDER_GRIT", "off")]),
            LevelFilter::OFF
        );
        assert_eq!(level_of(&[("TF_LOG", "JSON")]), LevelFilter::TRACE);
    }

    #[test]
    fn reserved_log_keys_override_fields() {
        let mut fields = Fields { message: "hello".into(), ..Fields::default() };
        fields.values.insert("@message".into(), 3.into());
        fields.values.insert("jobs".into(), 12.into());
        let line = line(&Level::WARN, "grit", OffsetDateTime::UNIX_EPOCH, fields);
        assert_eq!(
            serde_json::from_str::<Json>(&line).unwrap(),
            serde_json::json!({"@level": "warn", "@message": "hello", "@module": "grit",
                "@timestamp": "1970-01-01T00:00:00.000000Z", "jobs": 12})
        );
    }

    #[test]
    fn long_log_lines_are_truncated_below_plugin_limit() {
        let message = "é".repeat(200_000);
        let line =
            line(&Level::INFO, "grit", OffsetDateTime::UNIX_EPOCH, Fields { message, ..Fields::default() });
        assert!(line.len() < MAX_LOG_LINE, "{}", line.len());
        assert_eq!(serde_json::from_str::<Json>(&line).unwrap()["cut"], true);
    }
}
