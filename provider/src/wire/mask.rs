//! Choosing attributes of a value by dotted paths: to null those that are write-only, and to find those that are deprecated.
//!
//! Terraform passes write-only attributes in, and refuses every answer in which one is not null.

use std::collections::HashMap;

use rmpv::Value as Msgpack;

use super::{Encoded, rewrite::edit};
use crate::schema::{Attribute, AttributePath, AttributeType, Schema};

/// Some attributes of a schema, in every element where the path leads through a list or map.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Mask {
    attributes: Vec<(String, Cover)>,
}

/// What is done at an attribute.
#[derive(Debug, Clone, PartialEq)]
enum Cover {
    Null,
    Object(Mask),
    Elements(Mask),
}

impl Mask {
    /// The mask of these dotted paths, or the first path that the schema does not have.
    pub(crate) fn new<'a>(schema: &Schema, paths: &[&'a str]) -> Result<Self, &'a str> {
        let mut mask = Self::default();
        for path in paths {
            mask.add(&schema.block.attributes, path).ok_or(*path)?;
        }
        Ok(mask)
    }

    /// The value with the chosen attributes null.
    pub(crate) fn apply(&self, encoded: Encoded) -> Encoded {
        if self.attributes.is_empty() { encoded } else { edit(encoded, |value| self.cover(value)) }
    }

    /// The chosen attributes that are set, or not known yet, in a value.
    pub(crate) fn set_in(&self, encoded: &[u8]) -> Vec<AttributePath> {
        let mut paths = Vec::new();
        if let (false, Ok(value)) = (self.attributes.is_empty(), rmpv::decode::read_value(&mut &encoded[..]))
        {
            self.collect(&value, &AttributePath::root(), &mut paths);
        }
        paths
    }

    fn collect(&self, value: &Msgpack, path: &AttributePath, paths: &mut Vec<AttributePath>) {
        for (name, cover) in &self.attributes {
            let members = value.as_map().map_or(&[][..], Vec::as_slice);
            let Some((_, part)) = members.iter().find(|(key, _)| key.as_str() == Some(name)) else {
                continue;
            };
            let path = path.clone().attribute(name.clone());
            match (cover, part) {
                (_, Msgpack::Nil) => {}
                (Cover::Null, _) => paths.push(path),
                (Cover::Object(below), part) => below.collect(part, &path, paths),
                (Cover::Elements(below), Msgpack::Map(elements)) => {
                    for (key, element) in elements {
                        let key = key.as_str().unwrap_or_default().to_owned();
                        below.collect(element, &path.clone().key(key), paths);
                    }
                }
                (Cover::Elements(below), Msgpack::Array(elements)) => {
                    for (index, element) in (0_i64..).zip(elements) {
                        below.collect(element, &path.clone().index(index), paths);
                    }
                }
                (Cover::Elements(_), _) => {}
            }
        }
    }

    fn add(&mut self, attributes: &Attributes, path: &str) -> Option<()> {
        let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let attribute = attributes.get(name)?;
        let index = self.attributes.iter().position(|(known, _)| known == name);
        let Some(rest) = rest else {
            match index {
                Some(index) => self.attributes[index].1 = Cover::Null,
                None => self.attributes.push((name.to_owned(), Cover::Null)),
            }
            return Some(());
        };
        let (inner, repeated) = below(attribute)?;
        let index = index.unwrap_or_else(|| {
            let chosen = Self::default();
            let cover = if repeated { Cover::Elements(chosen) } else { Cover::Object(chosen) };
            self.attributes.push((name.to_owned(), cover));
            self.attributes.len() - 1
        });
        match &mut self.attributes[index].1 {
            Cover::Null => Some(()),
            Cover::Object(chosen) | Cover::Elements(chosen) => chosen.add(inner, rest),
        }
    }

    fn cover(&self, value: &mut Msgpack) {
        let Msgpack::Map(entries) = value else { return };
        for (name, cover) in &self.attributes {
            let Some((_, part)) = entries.iter_mut().find(|(key, _)| key.as_str() == Some(name)) else {
                continue;
            };
            match (cover, part) {
                (Cover::Null, part) => *part = Msgpack::Nil,
                (Cover::Object(below), part) => below.cover(part),
                (Cover::Elements(below), Msgpack::Array(elements)) => {
                    elements.iter_mut().for_each(|element| below.cover(element));
                }
                (Cover::Elements(below), Msgpack::Map(elements)) => {
                    elements.iter_mut().for_each(|(_, element)| below.cover(element));
                }
                (Cover::Elements(_), _) => {}
            }
        }
    }
}

type Attributes = HashMap<String, Attribute>;

/// The attributes below one, and whether they are there once or for each element.
fn below(attribute: &Attribute) -> Option<(&Attributes, bool)> {
    match &attribute.attr_type {
        AttributeType::AttributeSingle(below) => Some((below, false)),
        AttributeType::AttributeList(below)
        | AttributeType::AttributeSet(below)
        | AttributeType::AttributeMap(below) => Some((below, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::testing::{attribute, from_json, schema_of, to_json};

    fn managers() -> Schema {
        let element = crate::schema::attributes([
            ("address", attribute(AttributeType::String)),
            ("key", attribute(AttributeType::String)),
        ]);
        schema_of([
            ("token", AttributeType::String),
            ("managers", AttributeType::AttributeMap(element)),
            ("free", AttributeType::Map(Box::new(AttributeType::String))),
        ])
    }

    #[test]
    fn mask_nulls_attributes_at_top_and_in_elements() {
        let mask = Mask::new(&managers(), &["token", "managers.key"]).unwrap();
        let value = json!({"token": "t", "managers": {"a": {"address": "1", "key": "k"}, "key": {"address": "2", "key": "k"}},
            "free": {"token": "kept"}});
        assert_eq!(
            to_json(&mask.apply(from_json(&value))),
            json!({"token": null, "managers": {"a": {"address": "1", "key": null}, "key": {"address": "2", "key": null}},
                "free": {"token": "kept"}})
        );
    }

    #[test]
    fn mask_finds_set_attributes() {
        let mask = Mask::new(&managers(), &["token", "managers.key"]).unwrap();
        let value = json!({"token": null, "managers": {"a": {"address": "1", "key": "k"}, "b": {"address": "2", "key": null}},
            "free": null});
        let found: Vec<_> = mask.set_in(&from_json(&value)).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["managers[\"a\"].key"]);
    }

    #[test]
    fn mask_rejects_path_not_in_schema() {
        assert_eq!(Mask::new(&managers(), &["token", "managers.nothing"]), Err("managers.nothing"));
        assert_eq!(Mask::new(&managers(), &["free.key"]), Err("free.key"));
    }

    #[test]
    fn masked_null_stays_null() {
        let mask = Mask::new(&managers(), &["token", "managers.key"]).unwrap();
        assert_eq!(mask.apply(vec![0xc0]), vec![0xc0]);
    }
}
