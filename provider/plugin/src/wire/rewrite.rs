//! Changes to the values of all resources: unknown values, and attributes of older schemas.

use std::collections::HashMap;

use rmpv::Value as Msgpack;
use serde_json::Value as Json;

use super::Encoded;
use crate::schema::{Attribute, AttributeType, BlockSchema, Schema};

/// Replaces unknown values by the prior value, or by null: a state cannot contain unknown values.
pub(crate) fn settle(encoded: Encoded, prior: &[u8]) -> Encoded {
    let prior = rmpv::decode::read_value(&mut &prior[..]).unwrap_or(Msgpack::Nil);
    edit(encoded, |value| replace_unknown(value, &prior))
}

/// Removes attributes that the schema does not have: Terraform rejects a stored state with unknown attributes. Returns whether any was
/// removed.
pub(crate) fn prune_json(state: &mut Json, schema: &Schema) -> bool {
    prune_block(state, &schema.block)
}

/// Changes a value. A value that cannot be decoded is returned unchanged.
fn edit(encoded: Encoded, change: impl FnOnce(&mut Msgpack)) -> Encoded {
    let Ok(mut value) = rmpv::decode::read_value(&mut &encoded[..]) else { return encoded };
    change(&mut value);
    let mut bytes = Vec::with_capacity(encoded.len());
    match rmpv::encode::write_value(&mut bytes, &value) {
        Ok(()) => bytes,
        Err(_) => encoded,
    }
}

fn replace_unknown(value: &mut Msgpack, prior: &Msgpack) {
    match value {
        // Only unknown values are encoded as an extension.
        Msgpack::Ext(..) => {
            *value = prior.clone();
        }
        Msgpack::Map(entries) => {
            for (key, part) in entries {
                let before = prior.as_map().and_then(|prior| prior.iter().find(|(known, _)| known == key));
                replace_unknown(part, before.map_or(&Msgpack::Nil, |(_, before)| before));
            }
        }
        Msgpack::Array(parts) => {
            // List elements cannot be matched with prior elements.
            parts.iter_mut().for_each(|part| replace_unknown(part, &Msgpack::Nil));
        }
        _ => {}
    }
}

fn prune_block(value: &mut Json, block: &BlockSchema) -> bool {
    let Json::Object(members) = value else { return false };
    let before = members.len();
    members.retain(|name, _| block.attributes.contains_key(name) || block.blocks.contains_key(name));
    let mut pruned = members.len() < before;
    for (name, member) in members {
        if let Some(attribute) = block.attributes.get(name) {
            pruned |= prune_attribute(member, attribute);
        }
    }
    pruned
}

fn prune_attribute(value: &mut Json, attribute: &Attribute) -> bool {
    match &attribute.attr_type {
        AttributeType::AttributeSingle(below) => prune_object(value, below),
        AttributeType::AttributeList(below)
        | AttributeType::AttributeSet(below)
        | AttributeType::AttributeMap(below) => prune_each(value, |element| prune_object(element, below)),
        _ => false,
    }
}

fn prune_object(value: &mut Json, attributes: &HashMap<String, Attribute>) -> bool {
    let Json::Object(members) = value else { return false };
    let before = members.len();
    members.retain(|name, _| attributes.contains_key(name));
    let mut pruned = members.len() < before;
    for (name, member) in members {
        if let Some(attribute) = attributes.get(name) {
            pruned |= prune_attribute(member, attribute);
        }
    }
    pruned
}

fn prune_each(value: &mut Json, prune: impl Fn(&mut Json) -> bool) -> bool {
    // `any` would stop at the first element.
    elements(value).into_iter().filter_map(|element| prune(element).then_some(())).count() > 0
}

fn elements(value: &mut Json) -> Vec<&mut Json> {
    match value {
        Json::Array(elements) => elements.iter_mut().collect(),
        Json::Object(elements) => elements.values_mut().collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::testing::{attribute, from_json, schema_of, to_json};

    fn with_unknowns() -> Encoded {
        let unknown = || Msgpack::Ext(0, vec![]);
        let refined = || Msgpack::Ext(12, vec![0x81, 1, 0xc2]);
        let value = Msgpack::Map(vec![
            ("id".into(), unknown()),
            ("name".into(), "n".into()),
            ("nested".into(), Msgpack::Map(vec![("a".into(), refined()), ("b".into(), unknown())])),
            ("list".into(), Msgpack::Array(vec![1.into(), unknown()])),
        ]);
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).unwrap();
        bytes
    }

    #[test]
    fn unknown_values_become_null_on_create() {
        assert_eq!(
            to_json(&settle(with_unknowns(), &[0xc0])),
            json!({"id": null, "name": "n", "nested": {"a": null, "b": null}, "list": [1, null]})
        );
    }

    #[test]
    fn unknown_values_fall_back_to_prior_state() {
        let prior = from_json(&json!({"id": "7", "name": "old", "nested": {"a": 1}, "list": [5, 6]}));
        assert_eq!(
            to_json(&settle(with_unknowns(), &prior)),
            json!({"id": "7", "name": "n", "nested": {"a": 1, "b": null}, "list": [1, null]})
        );
    }

    #[test]
    fn removed_attributes_are_dropped_map_keys_are_kept() {
        let element = crate::schema::attributes([("host", attribute(AttributeType::String))]);
        let schema = schema_of([
            ("name", AttributeType::String),
            ("items", AttributeType::AttributeMap(element)),
            ("tags", AttributeType::Map(Box::new(AttributeType::String))),
        ]);
        let mut state =
            json!({"name": "n", "old": 1, "items": {"old": {"host": "h", "old": 2}}, "tags": {"old": "x"}});
        assert!(prune_json(&mut state, &schema));
        assert!(!prune_json(&mut state.clone(), &schema));
        assert_eq!(state, json!({"name": "n", "items": {"old": {"host": "h"}}, "tags": {"old": "x"}}));
    }
}
