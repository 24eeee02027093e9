//! Constructors for schemas.

use std::collections::HashMap;

use super::{Attribute, AttributeConstraint, AttributeType, Block, Description, Schema};

/// A schema without blocks. `description` is markdown.
pub fn schema<const N: usize>(version: i64, description: &str, attributes: [(&str, Attribute); N]) -> Schema {
    let block = Block {
        version,
        description: Description::markdown(description),
        attributes: self::attributes(attributes),
        ..Block::default()
    };
    Schema { version, block }
}

/// Attributes by name, for a schema or a nested attribute.
pub fn attributes<const N: usize>(attributes: [(&str, Attribute); N]) -> HashMap<String, Attribute> {
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

fn attribute(attr_type: AttributeType, constraint: AttributeConstraint, description: &str) -> Attribute {
    let description = Description::markdown(description);
    Attribute { attr_type, constraint, description, sensitive: false, deprecated: false }
}
