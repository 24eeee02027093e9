//! Values of any type.

use std::collections::BTreeMap;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, IgnoredAny},
};

use super::{Number, Value};

/// A value of any type. It has no `Debug`: it may contain secrets.
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

impl Dynamic {
    /// The type as users know it: `a string`, `a list`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Unknown => "unknown",
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "a map",
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rmpv::Value as Msgpack;

    fn encoded(value: &Msgpack) -> Vec<u8> {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, value).unwrap();
        bytes
    }

    #[test]
    fn value_of_any_type_round_trips() {
        let object = Msgpack::Map(vec![
            ("b".into(), Msgpack::Array(vec![1.into(), (-7).into(), 1.5.into(), "0.1".into(), Msgpack::Nil])),
            ("t".into(), Msgpack::Boolean(true)),
            ("u".into(), Msgpack::Ext(0, vec![])),
        ]);
        for value in [Msgpack::Nil, object, "text".into(), i64::MIN.into()] {
            let bytes = encoded(&value);
            let decoded: Dynamic = rmp_serde::from_slice(&bytes).unwrap();
            assert_eq!(rmp_serde::to_vec_named(&decoded).unwrap(), bytes);
        }
    }

    #[test]
    fn refined_unknown_is_unknown() {
        let bytes = encoded(&Msgpack::Array(vec![Msgpack::Ext(12, vec![0x81, 1, 0xc2]), "after".into()]));
        let decoded: Dynamic = rmp_serde::from_slice(&bytes).unwrap();
        assert!(decoded == Dynamic::List(vec![Dynamic::Unknown, Dynamic::Text("after".into())]));
    }

    #[test]
    fn json_is_decoded() {
        let value: Dynamic = serde_json::from_str(r#"{"a": [null, 1, 2.5, "x", false]}"#).unwrap();
        let Dynamic::Object(members) = &value else { panic!("an object") };
        let Dynamic::List(elements) = &members["a"] else { panic!("a list") };
        let kinds: Vec<_> = elements.iter().map(Dynamic::kind).collect();
        assert_eq!(kinds, ["null", "a number", "a number", "a string", "a bool"]);
    }
}
