//! Finds the attribute that makes a value undecodable.
//!
//! The types of a resource are decoded by serde, whose errors name no attribute (an untagged enum says "did not match any variant").
//! So after a failure, and only then, the value is taken apart: the attribute whose replacement cures it is the culprit; when several are
//! wrong, the first one that is wrong alone. The schema tells objects from maps, and so attribute names from keys.

use rmpv::Value as Msgpack;

use super::Probe;
use crate::schema::{Attribute, AttributePath, AttributeType, Block, NestedBlock, Schema};

/// The innermost part that could be blamed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Culprit {
    pub(crate) path: AttributePath,
    /// What stood there, in words, without secrets: "a string", "a whole number", "not known yet".
    pub(crate) received: String,
}

/// The part of `encoded` that does not decode, if one can be told.
pub(super) fn find(encoded: &[u8], schema: &Schema, probe: Probe) -> Option<Culprit> {
    let root = rmpv::decode::read_value(&mut &encoded[..]).ok()?;
    let decodes = |value: Msgpack| {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).is_ok() && probe(&bytes)
    };
    let culprit = descend(&root, Shape::Block(&schema.block), &AttributePath::root(), &decodes)?;
    (!culprit.path.steps.is_empty()).then_some(culprit)
}

fn descend(
    value: &Msgpack,
    shape: Shape<'_>,
    path: &AttributePath,
    decodes: &dyn Fn(Msgpack) -> bool,
) -> Option<Culprit> {
    let blame = || Some(Culprit { path: path.clone(), received: describe(value) });
    let parts = parts(value);
    if parts.is_empty() {
        return blame();
    }
    let blame_part = |index: usize, decodes: &dyn Fn(Msgpack) -> bool| {
        let (inner, step) = shape.inner(&parts[index]);
        descend(parts[index].1, inner, &step(path.clone()), decodes)
    };
    for stand_in in stand_ins() {
        if let Some(index) = (0..parts.len()).find(|index| decodes(put(value, *index, stand_in.as_ref()))) {
            return blame_part(index, &|part| decodes(put(value, index, Some(&part))));
        }
    }
    // Several are wrong. Alone, with null or nothing in the place of the others, the first of them still is.
    for others in [Some(Msgpack::Nil), None] {
        if !decodes(rebuild(value, |_, _| others.clone())) {
            continue;
        }
        let alone = |index: usize, part: Msgpack| {
            rebuild(value, |at, _| if at == index { Some(part.clone()) } else { others.clone() })
        };
        if let Some(index) = (0..parts.len()).find(|index| !decodes(alone(*index, parts[*index].1.clone()))) {
            return blame_part(index, &|part| decodes(alone(index, part)));
        }
    }
    blame()
}

/// The name or index of each part of a container, and the part; nothing for a leaf.
fn parts(value: &Msgpack) -> Vec<(Key<'_>, &Msgpack)> {
    match value {
        Msgpack::Map(entries) => {
            entries.iter().map(|(key, part)| (Key::Name(key.as_str().unwrap_or_default()), part)).collect()
        }
        Msgpack::Array(parts) => parts.iter().enumerate().map(|(at, part)| (Key::Index(at), part)).collect(),
        _ => Vec::new(),
    }
}

/// One of these is taken where a value of any type is. The last leaves the part out, which cures most: a list of two even passes for an
/// unknown value.
fn stand_ins() -> [Option<Msgpack>; 7] {
    let (list, map) = (Msgpack::Array(Vec::new()), Msgpack::Map(Vec::new()));
    [Some(Msgpack::Nil), Some("".into()), Some(0.into()), Some(false.into()), Some(list), Some(map), None]
}

/// The container with one part exchanged or left out.
fn put(container: &Msgpack, index: usize, part: Option<&Msgpack>) -> Msgpack {
    rebuild(container, |at, old| if at == index { part.cloned() } else { Some(old.clone()) })
}

/// The container with each part as `choose` says.
fn rebuild(container: &Msgpack, choose: impl Fn(usize, &Msgpack) -> Option<Msgpack>) -> Msgpack {
    match container {
        Msgpack::Map(entries) => {
            let chosen = entries.iter().enumerate();
            Msgpack::Map(
                chosen.filter_map(|(at, (key, part))| Some((key.clone(), choose(at, part)?))).collect(),
            )
        }
        Msgpack::Array(parts) => {
            Msgpack::Array(parts.iter().enumerate().filter_map(|(at, part)| choose(at, part)).collect())
        }
        leaf => leaf.clone(),
    }
}

fn describe(value: &Msgpack) -> String {
    match value {
        Msgpack::Nil => "null".into(),
        Msgpack::Boolean(_) => "a boolean".into(),
        // Not the number itself: the attribute may be sensitive.
        Msgpack::Integer(_) => "a whole number".into(),
        Msgpack::F32(_) | Msgpack::F64(_) => "a number with a fraction, or a very large one".into(),
        Msgpack::String(_) => "a string".into(),
        Msgpack::Binary(_) => "bytes".into(),
        Msgpack::Array(parts) => format!("a list of {}", parts.len()),
        Msgpack::Map(parts) => format!("an object or map of {}", parts.len()),
        Msgpack::Ext(..) => "not known yet".into(),
    }
}

#[derive(Clone, Copy)]
enum Key<'a> {
    Name(&'a str),
    Index(usize),
}

/// What the schema says about a place.
#[derive(Clone, Copy)]
enum Shape<'a> {
    Block(&'a Block),
    Blocks(&'a NestedBlock),
    Object(&'a std::collections::HashMap<String, Attribute>),
    Type(&'a AttributeType),
    Unknown,
}

impl<'a> Shape<'a> {
    /// The shape of a part, and how the path goes on to it.
    fn inner(
        self,
        (key, _): &(Key<'_>, &Msgpack),
    ) -> (Self, Box<dyn FnOnce(AttributePath) -> AttributePath>) {
        let name = match *key {
            Key::Name(name) => name.to_owned(),
            Key::Index(index) => {
                let index = i64::try_from(index).unwrap_or(i64::MAX);
                return (self.element(), Box::new(move |path| path.index(index)));
            }
        };
        match self.member(&name) {
            Some(inner) => (inner, Box::new(move |path| path.attribute(name))),
            None => (self.element(), Box::new(move |path| path.key(name))),
        }
    }

    /// The shape of the attribute `name`; `None` when this is no object (then `name` is a key).
    fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Block(block) => Some(match (block.attributes.get(name), block.blocks.get(name)) {
                (Some(attribute), _) => Self::Type(&attribute.attr_type),
                (None, Some(blocks)) => Self::Blocks(blocks),
                (None, None) => Self::Unknown,
            }),
            Self::Blocks(NestedBlock::Single(block) | NestedBlock::Group(block)) => {
                Self::Block(block).member(name)
            }
            Self::Object(attributes) | Self::Type(AttributeType::AttributeSingle(attributes)) => {
                Some(attributes.get(name).map_or(Self::Unknown, |attribute| Self::Type(&attribute.attr_type)))
            }
            Self::Type(AttributeType::Object(types)) => {
                Some(types.get(name).map_or(Self::Unknown, Self::Type))
            }
            Self::Blocks(_) | Self::Type(_) | Self::Unknown => None,
        }
    }

    /// The shape of an element of a list, set or map.
    fn element(self) -> Self {
        match self {
            Self::Type(AttributeType::List(of) | AttributeType::Set(of) | AttributeType::Map(of)) => {
                Self::Type(of)
            }
            Self::Type(
                AttributeType::AttributeList(of)
                | AttributeType::AttributeSet(of)
                | AttributeType::AttributeMap(of),
            ) => Self::Object(of),
            Self::Blocks(
                NestedBlock::List(block)
                | NestedBlock::Set(block)
                | NestedBlock::Map(block)
                | NestedBlock::Optional(block),
            ) => Self::Block(block),
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::schema::{Value, ValueNumber, ValueString};
    use crate::wire::testing::{attribute, from_json, schema_of};

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only decoded")]
    struct State {
        name: ValueString<'static>,
        port: ValueNumber,
        items: Value<std::collections::BTreeMap<String, Item>>,
        ports: Value<Vec<i64>>,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only decoded")]
    struct Item {
        host: String,
        weight: ValueNumber,
    }

    const FRACTION: &str = "a number with a fraction, or a very large one";

    fn culprit(value: &serde_json::Value) -> Option<(String, String)> {
        found(&from_json(value))
    }

    fn found(encoded: &[u8]) -> Option<(String, String)> {
        let element = crate::schema::attributes([
            ("host", attribute(AttributeType::String)),
            ("weight", attribute(AttributeType::Number)),
        ]);
        let schema = schema_of([
            ("name", AttributeType::String),
            ("port", AttributeType::Number),
            ("items", AttributeType::AttributeMap(element)),
            ("ports", AttributeType::List(Box::new(AttributeType::Number))),
        ]);
        let probe: Probe = |bytes| rmp_serde::from_slice::<State>(bytes).is_ok();
        find(encoded, &schema, probe).map(|culprit| (culprit.path.to_string(), culprit.received))
    }

    #[test]
    fn decode_error_names_attribute() {
        let value = json!({"name": "n", "port": 1.5, "items": null, "ports": null});
        assert_eq!(culprit(&value), Some(("port".into(), FRACTION.into())));
    }

    #[test]
    fn decode_error_names_attribute_in_map_of_objects() {
        let value = json!({"name": "n", "port": 1, "items": {"a": {"host": "h", "weight": 1}, "b": {"host": "h", "weight": 0.5}},
            "ports": null});
        assert_eq!(culprit(&value), Some(("items[\"b\"].weight".into(), FRACTION.into())));
    }

    #[test]
    fn decode_error_names_list_element() {
        let value = json!({"name": "n", "port": 1, "items": null, "ports": [1, 2, "three"]});
        assert_eq!(culprit(&value), Some(("ports[2]".into(), "a string".into())));
    }

    #[test]
    fn decode_error_names_one_of_several_attributes() {
        let value = json!({"name": 3, "port": 1.5, "items": null, "ports": ["x"]});
        let (path, _) = culprit(&value).unwrap();
        assert!(["name", "port", "ports"].contains(&path.as_str()), "{path}");
    }

    #[test]
    fn decode_error_reports_unknown_where_known_is_required() {
        let unknown = Msgpack::Ext(0, vec![]);
        let item = Msgpack::Map(vec![("host".into(), unknown), ("weight".into(), 1.into())]);
        let value = Msgpack::Map(vec![
            ("name".into(), "n".into()),
            ("port".into(), 1.into()),
            ("items".into(), Msgpack::Map(vec![("a".into(), item)])),
            ("ports".into(), Msgpack::Nil),
        ]);
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).unwrap();
        assert_eq!(found(&bytes), Some(("items[\"a\"].host".into(), "not known yet".into())));
    }

    #[test]
    fn decode_error_without_culprit_if_attribute_is_missing() {
        assert_eq!(culprit(&json!({"name": "n", "port": 1, "items": null})), None);
    }
}
