//! Converts schemas, diagnostics and paths to messages.

use std::collections::HashMap;

use grit_proto::tfplugin6 as pb;

use super::control_characters::visible;
use crate::{
    problem::{Problem, Problems},
    schema::{
        Attribute, AttributeConstraint, AttributePath, AttributePathStep, AttributeType, BlockSchema,
        NestedBlock, Schema,
    },
};

pub(crate) fn schema(schema: &Schema) -> pb::Schema {
    pb::Schema { version: schema.version, block: Some(block(&schema.block)) }
}

/// Errors first, then warnings.
///
/// Each diagnostic points at a top-level attribute: for a longer path, Terraform up to 1.11 shows the first line of the block. The text
/// contains the whole path.
pub(crate) fn diagnostics(errors: Problems, warnings: Problems) -> Vec<pb::Diagnostic> {
    use pb::diagnostic::Severity;
    let message = |severity: Severity| {
        move |problem: Problem| pb::Diagnostic {
            severity: severity.into(),
            detail: visible(problem.detail()),
            summary: visible(problem.summary),
            attribute: problem
                .path
                .steps
                .into_iter()
                .next()
                .map(|step| attribute_path(&AttributePath { steps: vec![step] })),
        }
    };
    let errors = errors.into_iter().map(message(Severity::Error));
    errors.chain(warnings.into_iter().map(message(Severity::Warning))).collect()
}

/// A line of progress of an action, as an event.
pub(crate) fn progress(line: String) -> pb::invoke_action::Event {
    use pb::invoke_action::event::{Progress, Type};
    pb::invoke_action::Event { r#type: Some(Type::Progress(Progress { message: visible(line) })) }
}

/// The result of an action, as an event.
pub(crate) fn completed(diagnostics: Vec<pb::Diagnostic>) -> pb::invoke_action::Event {
    use pb::invoke_action::event::{Completed, Type};
    pb::invoke_action::Event { r#type: Some(Type::Completed(Completed { diagnostics })) }
}

pub(crate) fn attribute_path(path: &AttributePath) -> pb::AttributePath {
    use pb::attribute_path::{Step, step::Selector};
    let selector = |step: &AttributePathStep| match step {
        AttributePathStep::Attribute(name) => Selector::AttributeName(name.to_string()),
        AttributePathStep::Key(key) => Selector::ElementKeyString(key.to_string()),
        AttributePathStep::Index(index) => Selector::ElementKeyInt(*index),
    };
    pb::AttributePath {
        steps: path.steps.iter().map(|step| Step { selector: Some(selector(step)) }).collect(),
    }
}

fn block(block: &BlockSchema) -> pb::schema::Block {
    pb::schema::Block {
        version: block.version,
        attributes: attributes(&block.attributes),
        block_types: sorted(&block.blocks).map(|(name, nested)| nested_block(name, nested)).collect(),
        description: block.description.content.clone(),
        description_kind: pb::StringKind::Markdown.into(),
        deprecated: block.deprecated,
        ..Default::default()
    }
}

fn nested_block(name: &str, nested: &NestedBlock) -> pb::schema::NestedBlock {
    use pb::schema::nested_block::NestingMode;
    // No limit is 0.
    let (nesting, inner, max_items) = match nested {
        NestedBlock::Single(inner) => (NestingMode::Single, inner, 0),
        NestedBlock::Group(inner) => (NestingMode::Group, inner, 0),
        NestedBlock::Optional(inner) => (NestingMode::List, inner, 1),
        NestedBlock::List(inner) => (NestingMode::List, inner, 0),
        NestedBlock::Set(inner) => (NestingMode::Set, inner, 0),
        NestedBlock::Map(inner) => (NestingMode::Map, inner, 0),
    };
    pb::schema::NestedBlock {
        type_name: name.to_owned(),
        block: Some(block(inner)),
        nesting: nesting.into(),
        min_items: 0,
        max_items,
    }
}

fn attributes(attributes: &HashMap<String, Attribute>) -> Vec<pb::schema::Attribute> {
    sorted(attributes).map(|(name, attribute)| self::attribute(name, attribute)).collect()
}

/// Sorted, because the order of the map is random.
fn sorted<T>(members: &HashMap<String, T>) -> impl Iterator<Item = (&String, &T)> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(name, _)| *name);
    members.into_iter()
}

fn attribute(name: &str, attribute: &Attribute) -> pb::schema::Attribute {
    let nested_type = nested_type(&attribute.attr_type);
    let constraint = &attribute.constraint;
    pb::schema::Attribute {
        name: name.to_owned(),
        // Terraform rejects a schema that sets both `type` and `nested_type`.
        r#type: if nested_type.is_some() { Vec::new() } else { attribute.attr_type.to_string().into_bytes() },
        nested_type,
        description: attribute.description.content.clone(),
        description_kind: pb::StringKind::Markdown.into(),
        required: matches!(constraint, AttributeConstraint::Required),
        optional: matches!(constraint, AttributeConstraint::Optional | AttributeConstraint::OptionalComputed),
        computed: matches!(constraint, AttributeConstraint::Computed | AttributeConstraint::OptionalComputed),
        sensitive: attribute.sensitive,
        deprecated: attribute.deprecated,
        ..Default::default()
    }
}

fn nested_type(of: &AttributeType) -> Option<pb::schema::Object> {
    use pb::schema::object::NestingMode;
    let (nesting, inner) = match of {
        AttributeType::AttributeSingle(inner) => (NestingMode::Single, inner),
        AttributeType::AttributeList(inner) => (NestingMode::List, inner),
        AttributeType::AttributeSet(inner) => (NestingMode::Set, inner),
        AttributeType::AttributeMap(inner) => (NestingMode::Map, inner),
        _ => return None,
    };
    Some(pb::schema::Object { attributes: attributes(inner), nesting: nesting.into(), ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{attribute as plain, schema_of};

    fn sample() -> pb::schema::Block {
        let element = crate::schema::attributes([
            ("key", plain(AttributeType::String)),
            ("host", plain(AttributeType::String)),
        ]);
        let sample =
            schema_of([("zone", AttributeType::String), ("items", AttributeType::AttributeMap(element))]);
        schema(&sample).block.unwrap()
    }

    #[test]
    fn schema_attributes_are_sorted_at_every_level() {
        let block = sample();
        let names = |attributes: &[pb::schema::Attribute]| {
            attributes.iter().map(|attribute| attribute.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&block.attributes), ["items", "zone"]);
        assert_eq!(names(&block.attributes[0].nested_type.as_ref().unwrap().attributes), ["host", "key"]);
    }

    #[test]
    fn nested_attribute_has_only_nested_type() {
        let block = sample();
        assert!(block.attributes[0].r#type.is_empty());
        assert!(block.attributes[1].nested_type.is_none());
        assert_eq!(block.attributes[1].r#type, b"\"string\"");
    }

    #[test]
    fn nested_blocks_are_sent_with_their_limits() {
        use pb::schema::nested_block::NestingMode;
        let inner = || schema_of([("port", AttributeType::Number)]).block;
        let mut outer = schema_of([("zone", AttributeType::String)]);
        outer.block.blocks = [("one", NestedBlock::Optional(inner())), ("many", NestedBlock::Set(inner()))]
            .map(|(name, it)| (name.to_owned(), it))
            .into();
        let block = schema(&outer).block.unwrap();
        let sent: Vec<_> =
            block.block_types.iter().map(|it| (it.type_name.as_str(), it.nesting(), it.max_items)).collect();
        assert_eq!(sent, [("many", NestingMode::Set, 0), ("one", NestingMode::List, 1)]);
        assert_eq!(block.block_types[0].block.as_ref().unwrap().attributes[0].name, "port");
    }
}
