//! Computed values of resources and data sources.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::schema::Value;

/// Null for `None`.
pub(crate) fn optional_value<T>(value: Option<T>) -> Value<T> {
    value.map_or(Value::Null, Value::Value)
}

/// In UTC, to the second.
pub(crate) fn rfc3339(moment: OffsetDateTime) -> Option<String> {
    moment.replace_nanosecond(0).ok()?.format(&Rfc3339).ok()
}
