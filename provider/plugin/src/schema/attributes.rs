//! Constructors for schemas.

use std::collections::HashMap;

use super::{Attribute, AttributeConstraint, AttributeType, BlockSchema, Description, Schema};

/// Attributes by name, for a schema or a nested object.
pub type Attributes = HashMap<String, Attribute>;

/// A schema without blocks. `description` is markdown.
pub fn schema<const N: usize>(version: i64, description: &str, attributes: [(&str, Attribute); N]) -> Schema {
    object_schema(version, description, self::attributes(attributes))
}

pub fn object_schema(version: i64, description: &str, attributes: Attributes) -> Schema {
    let description = Description::markdown(description);
    Schema { version, block: BlockSchema { version, description, attributes, ..BlockSchema::default() } }
}

/// Attributes by name, for a schema or a nested attribute.
pub fn attributes<const N: usize>(attributes: [(&str, Attribute); N]) -> Attributes {
    attributes.into_iter().map(|(name, attribute)| (name.to_owned(), attribute)).collect()
}

/// An attribute that the configuration must set. `description` is markdown, here and below.
pub fn required(attr_type: AttributeType, description: &str) -> Attribute {
    attribute(attr_type, AttributeConstraint::Required, description)
}

/// An attribute that the configuration may set.
pub fn optional(attr_type: AttributeType, description: &str) -> Attribute {
    attribute(attr_type, AttributeConstraint::Optional, description)
}

/// An attribute that the provider sets.
pub fn computed(attr_type: AttributeType, description: &str) -> Attribute {
    attribute(attr_type, AttributeConstraint::Computed, description)
}

/// An attribute whose value Terraform hides. It is stored in the state.
pub fn sensitive(attribute: Attribute) -> Attribute {
    Attribute { sensitive: true, ..attribute }
}

pub fn text(description: &str) -> Attribute {
    optional(AttributeType::String, description)
}

/// An optional string that Terraform hides.
pub fn secret(description: &str) -> Attribute {
    sensitive(text(description))
}

pub fn required_text(description: &str) -> Attribute {
    required(AttributeType::String, description)
}

pub fn texts(description: &str) -> Attribute {
    optional(AttributeType::List(Box::new(AttributeType::String)), description)
}

pub fn text_map(description: &str) -> Attribute {
    optional(AttributeType::Map(Box::new(AttributeType::String)), description)
}

/// An optional list of objects.
pub fn objects(attributes: Attributes) -> impl FnOnce(&str) -> Attribute {
    |description| optional(AttributeType::AttributeList(attributes), description)
}

pub fn required_object(attributes: Attributes) -> impl FnOnce(&str) -> Attribute {
    |description| required(AttributeType::AttributeSingle(attributes), description)
}

/// An attribute of this type that the provider sets.
pub fn computed_as(attr_type: AttributeType) -> impl FnOnce(&str) -> Attribute {
    |description| computed(attr_type, description)
}

pub fn computed_text(description: &str) -> Attribute {
    computed(AttributeType::String, description)
}

pub fn computed_number(description: &str) -> Attribute {
    computed(AttributeType::Number, description)
}

pub fn computed_boolean(description: &str) -> Attribute {
    computed(AttributeType::Bool, description)
}

pub fn number(description: &str) -> Attribute {
    optional(AttributeType::Number, description)
}

pub fn boolean(description: &str) -> Attribute {
    optional(AttributeType::Bool, description)
}

pub fn object(attributes: Attributes) -> impl FnOnce(&str) -> Attribute {
    |description| optional(AttributeType::AttributeSingle(attributes), description)
}

fn attribute(attr_type: AttributeType, constraint: AttributeConstraint, description: &str) -> Attribute {
    let description = Description::markdown(description);
    Attribute { attr_type, constraint, description, sensitive: false, deprecated: false }
}
