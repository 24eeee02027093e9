//! Values of any type, as Terraform has them.

use std::collections::BTreeMap;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, IgnoredAny},
};

use grit_plugin::schema::{Number, Value};

#[derive(Clone, PartialEq)]
pub enum Dynamic {
    Null,
    Unknown,
    Bool(bool),
    Number(Number),
    Text(String),
    /// A list, set or tuple.
    List(Vec<Dynamic>),
    /// A map or object.
    Object(BTreeMap<String, Dynamic>),
}

impl Serialize for Dynamic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Unknown => Value::<()>::Unknown.serialize(serializer),
            Self::Bool(bool) => serializer.serialize_bool(*bool),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(elements) => elements.serialize(serializer),
            Self::Object(members) => members.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Dynamic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DynamicVisitor)
    }
}

struct DynamicVisitor;

impl<'de> de::Visitor<'de> for DynamicVisitor {
    type Value = Dynamic;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Dynamic, E> {
        Ok(Dynamic::Null)
    }

    fn visit_bool<E: de::Error>(self, bool: bool) -> Result<Dynamic, E> {
        Ok(Dynamic::Bool(bool))
    }

    fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Dynamic, E> {
        Ok(Dynamic::Number(Number::Whole(whole)))
    }

    fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Dynamic, E> {
        Ok(Dynamic::Number(whole.into()))
    }

    fn visit_f64<E: de::Error>(self, fraction: f64) -> Result<Dynamic, E> {
        Ok(Dynamic::Number(Number::Fraction(fraction)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Dynamic, E> {
        Ok(Dynamic::Text(text.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut elements: A) -> Result<Dynamic, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(Dynamic::List(list))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut members: A) -> Result<Dynamic, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((name, member)) = members.next_entry()? {
            object.insert(name, member);
        }
        Ok(Dynamic::Object(object))
    }

    /// Terraform's unknown is an extension of msgpack, which arrives here.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, extension: D) -> Result<Dynamic, D::Error> {
        <(i8, IgnoredAny)>::deserialize(extension)?;
        Ok(Dynamic::Unknown)
    }
}
