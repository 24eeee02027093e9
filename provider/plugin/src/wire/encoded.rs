//! Encoded values, and their messages.

use grit_proto::tfplugin6 as pb;
use serde::Serialize;

use crate::{
    problem::{Problem, texts},
    schema::holds_unknown,
};

/// A value as msgpack; null is nil.
pub(crate) type Encoded = Vec<u8>;

pub(crate) const NIL: &[u8] = &[0xc0];

/// Whether a value contains an unknown value. JSON has no unknown values.
pub(crate) fn has_unknown(value: Option<&pb::DynamicValue>) -> bool {
    value.is_some_and(|value| holds_unknown(&value.msgpack))
}

pub(crate) fn is_null(value: &pb::DynamicValue) -> bool {
    value.msgpack == NIL || (value.msgpack.is_empty() && (value.json.is_empty() || value.json == b"null"))
}

/// An encoded value as a message.
pub(crate) fn message(encoded: Encoded) -> pb::DynamicValue {
    pb::DynamicValue { msgpack: encoded, json: Vec::new() }
}

pub(crate) fn null_message() -> pb::DynamicValue {
    message(NIL.to_vec())
}

/// Encodes a value. `what` names it in a failure.
pub(crate) fn encode<T: Serialize>(value: &T, what: &str) -> Result<Encoded, Problem> {
    rmp_serde::to_vec_named(value).map_err(|error| texts::cannot_encode(what, error))
}
