//! Encoded values from Terraform.

use grit_proto::tfplugin6 as pb;
use serde::{Deserialize, Serialize};

use crate::{
    explain::protocol,
    schema::{AttributePath, Diagnostics, holds_unknown},
};

/// A value as msgpack; null is nil.
pub(crate) type Encoded = Vec<u8>;

const NIL: &[u8] = &[0xc0];

#[derive(Debug, Clone)]
pub(crate) struct Raw(Encoded);

impl Raw {
    pub(crate) fn null() -> Self {
        Self(NIL.to_vec())
    }

    /// The value of a message: msgpack, or JSON, which the protocol allows.
    pub(crate) fn from_message(
        value: Option<pb::DynamicValue>,
        what: &str,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let Some(value) = value else { return Some(Self::null()) };
        if !value.msgpack.is_empty() {
            return Some(Self(value.msgpack));
        }
        if value.json.is_empty() {
            return Some(Self::null());
        }
        let json =
            serde_json::from_slice::<serde_json::Value>(&value.json).map_err(|error| error.to_string());
        match json.and_then(|json| rmp_serde::to_vec_named(&json).map_err(|error| error.to_string())) {
            Ok(msgpack) => Some(Self(msgpack)),
            Err(error) => {
                protocol::invalid_json(what, error).error(AttributePath::root(), diags);
                None
            }
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0 == NIL
    }

    pub(crate) fn into_encoded(self) -> Encoded {
        self.0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Decodes a value that Terraform has checked against the schema. `what` names it in the diagnostic of a failure.
    pub(crate) fn decode<'a, T: Deserialize<'a>>(&'a self, what: &str, diags: &mut Diagnostics) -> Option<T> {
        let error = match rmp_serde::from_slice(&self.0) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        protocol::cannot_decode(what, error).error(AttributePath::root(), diags);
        None
    }
}

/// Whether a value contains an unknown value. JSON has no unknown values.
pub(crate) fn has_unknown(value: Option<&pb::DynamicValue>) -> bool {
    value.is_some_and(|value| holds_unknown(&value.msgpack))
}

pub(crate) fn is_null(value: &pb::DynamicValue) -> bool {
    value.msgpack == NIL || (value.msgpack.is_empty() && (value.json.is_empty() || value.json == b"null"))
}

/// The values as one array.
pub(crate) fn array(values: &[Raw]) -> Raw {
    const ARRAY_32: u8 = 0xdd;
    let mut encoded = vec![ARRAY_32];
    encoded.extend(u32::try_from(values.len()).unwrap_or(u32::MAX).to_be_bytes());
    values.iter().for_each(|value| encoded.extend(&value.0));
    Raw(encoded)
}

/// An encoded value as a message.
pub(crate) fn message(encoded: Encoded) -> pb::DynamicValue {
    pb::DynamicValue { msgpack: encoded, json: Vec::new() }
}

/// The private data of each object. Resources have none, but an object must not have empty private data: see
/// [`walks`](crate::server).
pub(crate) fn private() -> Vec<u8> {
    NIL.to_vec()
}

pub(crate) fn null_message() -> pb::DynamicValue {
    message(NIL.to_vec())
}

/// Encodes a value. `what` names it in the diagnostic of a failure.
pub(crate) fn encode<T: Serialize>(value: &T, what: &str, diags: &mut Diagnostics) -> Option<Encoded> {
    rmp_serde::to_vec_named(value)
        .map_err(|error| protocol::cannot_encode(what, error).error(AttributePath::root(), diags))
        .ok()
}
