//! Writes the messages of the API as JSON: the output of the commands and of `GET /status`.

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer, ser::SerializeMap};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A message that is a JSON object.
pub(crate) trait Object {
    fn fields<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error>;
}

/// A message as JSON.
pub(crate) struct Json<'a, T>(pub(super) &'a T);

impl<T: Object> Serialize for Json<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        self.0.fields(&mut object)?;
        object.end()
    }
}

/// A message as a line of JSON.
pub(crate) fn json(message: &impl Object) -> String {
    line(&Json(message))
}

/// Messages as a line of JSON.
pub(crate) fn json_list<T: Object>(messages: &[T]) -> String {
    line(&all(messages))
}

fn line(value: &impl Serialize) -> String {
    // All keys are texts, and the serialization of a message does not fail.
    let text = serde_json::to_string(value).unwrap_or_default();
    format!("{text}\n")
}

/// `null` if the message is absent.
#[expect(clippy::ref_option, reason = "as the fields are")]
pub(super) fn some<T>(message: &Option<T>) -> Option<Json<'_, T>> {
    message.as_ref().map(Json)
}

pub(super) fn all<T>(messages: &[T]) -> Vec<Json<'_, T>> {
    messages.iter().map(Json).collect()
}

/// Whole seconds.
pub(super) fn seconds(duration: Option<prost_types::Duration>) -> u64 {
    duration.and_then(|duration| Duration::try_from(duration).ok()).unwrap_or_default().as_secs()
}

/// A time as text, such as `2023-11-14T22:13:20.5Z`.
pub(crate) fn time_text(time: Option<prost_types::Timestamp>) -> Option<String> {
    let time = SystemTime::try_from(time?).ok()?;
    OffsetDateTime::from(time).format(&Rfc3339).ok()
}
