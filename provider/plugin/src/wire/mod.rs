//! Converts messages and msgpack to native values and back.

mod control_characters;
mod encoded;
mod private;
mod rewrite;
mod to_proto;

pub(crate) use encoded::{Encoded, NIL, encode, has_unknown, is_null, message, null_message};
pub(crate) use private::PrivateData;
pub(crate) use rewrite::{prune_json, settle};
pub(crate) use to_proto::{attribute_path, completed, diagnostics, progress, schema};

#[cfg(test)]
mod testing {
    //! Values and schemas for the tests of this module.

    use super::Encoded;
    use crate::schema::{Attribute, AttributeConstraint, AttributeType, BlockSchema, Schema};

    pub(super) fn attribute(attr_type: AttributeType) -> Attribute {
        Attribute { attr_type, constraint: AttributeConstraint::Optional, ..Attribute::default() }
    }

    pub(super) fn schema_of<const N: usize>(attributes: [(&str, AttributeType); N]) -> Schema {
        let attributes = attributes.map(|(name, of)| (name.to_owned(), attribute(of))).into();
        Schema { version: 1, block: BlockSchema { attributes, ..BlockSchema::default() } }
    }

    pub(super) fn from_json(value: &serde_json::Value) -> Encoded {
        rmp_serde::to_vec_named(value).unwrap()
    }

    pub(super) fn to_json(encoded: &[u8]) -> serde_json::Value {
        rmp_serde::from_slice(encoded).unwrap()
    }
}
