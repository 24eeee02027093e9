//! An encoded value: what Terraform sent, not yet looked at.

use grit_proto::tfplugin6 as pb;
use serde::{Deserialize, Serialize};

use super::culprit;
use crate::schema::{Diagnostics, DiagnosticsExt, Schema};

/// A value encoded as msgpack. Terraform's null is msgpack's nil.
pub(crate) type Encoded = Vec<u8>;

/// Says whether some bytes decode as the type that failed to decode before.
pub(crate) type Probe = fn(&[u8]) -> bool;

const NIL: &[u8] = &[0xc0];

/// A value from Terraform, encoded as msgpack.
#[derive(Debug, Clone)]
pub(crate) struct Raw(Encoded);

impl Raw {
    pub(crate) fn null() -> Self {
        Self(NIL.to_vec())
    }

    /// Private data: opaque bytes to Terraform, msgpack to us. None were stored yet: null.
    pub(crate) fn private(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::null() } else { Self(bytes) }
    }

    /// The value in a message. Terraform sends msgpack; JSON is the protocol's other form.
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
                diags.fail(
                    format!("Cannot decode {what}"),
                    format!("Terraform sent JSON that is not valid: {error}."),
                );
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

    /// Decodes the value; `what` names it in the diagnostic of a failure.
    ///
    /// The error of a decoder has no path. So when `schema` is at hand, parts of the value are left out and `probe`d until the attribute
    /// is found that does not fit.
    pub(crate) fn decode<'a, T: Deserialize<'a>>(
        &'a self,
        what: &str,
        schema: impl FnOnce() -> Option<Schema>,
        probe: Probe,
        diags: &mut Diagnostics,
    ) -> Option<T> {
        let error = match rmp_serde::from_slice(&self.0) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let found = schema().and_then(|schema| culprit::find(&self.0, &schema, probe));
        match found {
            Some(culprit) => diags.fail_at(
                culprit.path.clone(),
                format!("Cannot use the value of `{}`", culprit.path),
                format!(
                    "In {what}, `{}` is {}, which is not valid for this attribute ({error}).",
                    culprit.path, culprit.received
                ),
            ),
            None => diags.fail(
                format!("Cannot decode {what}"),
                format!(
                    "{error}. This is a bug in the provider: its schema and its code do not match.\n\nCode: bug"
                ),
            ),
        }
        None
    }
}

/// Whether a value that Terraform sent, or a part of it, is not known yet. JSON has no unknown values.
pub(crate) fn has_unknown(value: Option<&pb::DynamicValue>) -> bool {
    fn unknown(value: &rmpv::Value) -> bool {
        match value {
            rmpv::Value::Ext(..) => true,
            rmpv::Value::Array(parts) => parts.iter().any(unknown),
            rmpv::Value::Map(parts) => parts.iter().any(|(_, part)| unknown(part)),
            _ => false,
        }
    }
    value.is_some_and(|value| {
        rmpv::decode::read_value(&mut &value.msgpack[..]).is_ok_and(|value| unknown(&value))
    })
}

/// Whether Terraform sent its null.
pub(crate) fn is_null(value: &pb::DynamicValue) -> bool {
    value.msgpack == NIL || (value.msgpack.is_empty() && (value.json.is_empty() || value.json == b"null"))
}

/// An encoded value as a message.
pub(crate) fn message(encoded: Encoded) -> pb::DynamicValue {
    pb::DynamicValue { msgpack: encoded, json: Vec::new() }
}

/// Terraform's null as a message.
pub(crate) fn null_message() -> pb::DynamicValue {
    message(NIL.to_vec())
}

/// Encodes a value as Terraform expects it; `what` names it in the diagnostic of a failure.
pub(crate) fn encode<T: Serialize>(value: &T, what: &str, diags: &mut Diagnostics) -> Option<Encoded> {
    rmp_serde::to_vec_named(value)
        .map_err(|error| {
            diags.fail(
                format!("Cannot encode {what}"),
                format!("{error}. This is a bug in the provider.\n\nCode: bug"),
            );
        })
        .ok()
}
