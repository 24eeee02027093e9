//! The identity of an object (Terraform 1.12): one attribute of its state.

use grit_proto::tfplugin6 as pb;
use rmpv::Value as Msgpack;
use serde_json::Value as Json;

use super::message;
use crate::schema::{AttributeType, Schema};

/// The attribute that identifies the objects of a type.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    attribute: &'static str,
}

impl Identity {
    /// The version of all identity schemas.
    pub(crate) const VERSION: i64 = 0;

    pub(crate) fn new(attribute: &'static str) -> Self {
        Self { attribute }
    }

    /// The identity's schema, for a type with this schema; `None` if the attribute is not one of its strings.
    pub(crate) fn schema(&self, of: &Schema) -> Option<pb::ResourceIdentitySchema> {
        let found = of.block.attributes.get(self.attribute)?;
        if !matches!(found.attr_type, AttributeType::String) {
            return None;
        }
        let identity = pb::resource_identity_schema::IdentityAttribute {
            name: self.attribute.to_owned(),
            r#type: found.attr_type.to_string().into_bytes(),
            required_for_import: true,
            optional_for_import: false,
            description: found.description.content.clone(),
        };
        Some(pb::ResourceIdentitySchema { version: Self::VERSION, identity_attributes: vec![identity] })
    }

    /// The identity of the object with this state. None while the attribute is null or unknown: Terraform refuses such an identity, which
    /// would fail a create.
    pub(crate) fn of(&self, state: &[u8]) -> Option<pb::ResourceIdentityData> {
        self.text(state).map(|text| self.data(&text))
    }

    /// The value in an identity from Terraform.
    pub(crate) fn value(&self, identity: &pb::ResourceIdentityData) -> Option<String> {
        self.text(&identity.identity_data.as_ref()?.msgpack)
    }

    /// A stored identity. An unknown member is left out.
    pub(crate) fn upgrade(&self, stored: &Json) -> Option<pb::ResourceIdentityData> {
        Some(self.data(stored.get(self.attribute)?.as_str()?))
    }

    fn text(&self, object: &[u8]) -> Option<String> {
        let Ok(Msgpack::Map(members)) = rmpv::decode::read_value(&mut &object[..]) else { return None };
        let (_, value) = members.iter().find(|(name, _)| name.as_str() == Some(self.attribute))?;
        value.as_str().map(str::to_owned)
    }

    fn data(&self, text: &str) -> pb::ResourceIdentityData {
        let object = Msgpack::Map(vec![(self.attribute.into(), text.into())]);
        let mut encoded = Vec::new();
        // Writing to a vector cannot fail.
        let _ = rmpv::encode::write_value(&mut encoded, &object);
        pb::ResourceIdentityData { identity_data: Some(message(encoded)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{from_json, schema_of, to_json};
    use serde_json::json;

    fn identity() -> Identity {
        Identity::new("name")
    }

    #[test]
    fn only_a_string_of_the_schema_is_an_identity() {
        let schema = schema_of([("name", AttributeType::String), ("count", AttributeType::Number)]);
        let identity_of = |attribute| Identity::new(attribute).schema(&schema);
        assert_eq!(identity_of("name").unwrap().identity_attributes[0].name, "name");
        assert_eq!((identity_of("count"), identity_of("missing")), (None, None));
    }

    #[test]
    fn identity_is_the_attribute_of_the_state() {
        let found = identity().of(&from_json(&json!({ "name": "n", "count": 1 }))).unwrap();
        assert_eq!(to_json(&found.identity_data.as_ref().unwrap().msgpack), json!({ "name": "n" }));
        assert_eq!(identity().value(&found).as_deref(), Some("n"));
    }

    #[test]
    fn null_or_unknown_attribute_has_no_identity() {
        let unknown = Msgpack::Map(vec![("name".into(), Msgpack::Ext(0, vec![0]))]);
        let mut encoded = Vec::new();
        rmpv::encode::write_value(&mut encoded, &unknown).unwrap();
        for state in [encoded, from_json(&json!({ "name": null })), from_json(&json!(null))] {
            assert_eq!(identity().of(&state), None);
        }
    }

    #[test]
    fn stored_identity_keeps_only_its_attribute() {
        let upgraded = identity().upgrade(&json!({ "name": "n", "old": true })).unwrap();
        assert_eq!(to_json(&upgraded.identity_data.unwrap().msgpack), json!({ "name": "n" }));
        assert_eq!(identity().upgrade(&json!({ "old": true })), None);
    }
}
