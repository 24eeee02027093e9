//! Stored states, which are JSON.

use grit_proto::tfplugin6 as pb;
use serde_json::Value as Json;

use crate::problem::{Problem, texts};

/// The stored state of a type.
pub(super) fn parse(state: &pb::RawState, name: &str) -> Result<Json, Problem> {
    if state.json.is_empty() {
        return Err(texts::stored_state_empty(name));
    }
    serde_json::from_slice(&state.json).map_err(|error| texts::stored_state_invalid(name, error))
}

/// The unchanged state as a message.
pub(super) fn unchanged(state: pb::RawState) -> pb::DynamicValue {
    pb::DynamicValue { json: state.json, msgpack: Vec::new() }
}

/// The state as a message, in JSON: Terraform decodes it with the schema, and sets missing values to null.
pub(super) fn message(state: &Json) -> pb::DynamicValue {
    pb::DynamicValue { json: state.to_string().into_bytes(), msgpack: Vec::new() }
}
