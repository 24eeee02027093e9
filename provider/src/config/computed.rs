//! Computed values of resources and data sources.

use grit_plugin::schema::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Null for `None`.
pub(crate) fn optional_value<T>(value: Option<T>) -> Value<T> {
    value.map_or(Value::Null, Value::Value)
}

/// In UTC, to the second.
pub(crate) fn rfc3339(moment: OffsetDateTime) -> Option<String> {
    moment.replace_nanosecond(0).ok()?.format(&Rfc3339).ok()
}
