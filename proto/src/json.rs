//! How the fields of the wrapper's API look as JSON, where that differs from their types: the attributes of the generated code name these functions.

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::wrapper_v1::{DrainOutcome, Level, Mode, State};

/// The name of an enum value without the prefix of its enum: `jobs_aborted` for `DRAIN_OUTCOME_JOBS_ABORTED`.
pub fn short(name: &str) -> String {
    let prefixes = ["DRAIN_OUTCOME_", "LEVEL_", "MODE_", "STATE_"];
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name).to_ascii_lowercase()
}

/// A time as text, such as `2023-11-14T22:13:20.5Z`.
pub fn time_text(time: Option<prost_types::Timestamp>) -> Option<String> {
    let time = SystemTime::try_from(time?).ok()?;
    OffsetDateTime::from(time).format(&Rfc3339).ok()
}

/// Whole seconds; 0 without a duration.
pub fn whole_seconds(duration: Option<prost_types::Duration>) -> u64 {
    duration.and_then(|duration| Duration::try_from(duration).ok()).unwrap_or_default().as_secs()
}

pub(crate) fn state<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    short(State::try_from(*number).unwrap_or_default().as_str_name()).serialize(serializer)
}

pub(crate) fn mode<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    short(Mode::try_from(*number).unwrap_or_default().as_str_name()).serialize(serializer)
}

/// `null` if it is unspecified.
pub(crate) fn level<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let level = Level::try_from(*number).ok().filter(|level| *level != Level::Unspecified);
    level.map(|level| short(level.as_str_name())).serialize(serializer)
}

/// `null` if it is unspecified.
pub(crate) fn outcome<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let outcome =
        DrainOutcome::try_from(*number).ok().filter(|outcome| *outcome != DrainOutcome::Unspecified);
    outcome.map(|outcome| short(outcome.as_str_name())).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "as serde passes a field")]
pub(crate) fn time<S: Serializer>(
    time: &Option<prost_types::Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time_text(*time).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "as serde passes a field")]
pub(crate) fn seconds<S: Serializer>(
    duration: &Option<prost_types::Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    whole_seconds(*duration).serialize(serializer)
}

/// `null` if it is empty.
pub(crate) fn text<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    Some(text).filter(|text| !text.is_empty()).serialize(serializer)
}
