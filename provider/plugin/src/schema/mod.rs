//! Attributes, values (null, unknown, known) and paths.
//!
//! The types of schemas and values come from the `tf-provider` crate, which only this module uses, so that it can be replaced.

mod attributes;
mod number;
mod unknown;

pub use attributes::{
    Attributes, attributes, boolean, computed, computed_as, computed_boolean, computed_number, computed_text,
    number, object, object_schema, objects, optional, required, required_object, required_text, schema,
    secret, sensitive, text, text_map, texts,
};
pub use number::Number;
pub use tf_provider::{
    AttributePath, AttributePathStep,
    schema::{
        Attribute, AttributeConstraint, AttributeType, Block as BlockSchema, Description, NestedBlock, Schema,
    },
    value::{Value, ValueNumber},
};
pub use unknown::{holds_unknown, is_known};
