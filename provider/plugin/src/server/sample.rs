//! A provider for tests: `sample_thing`, which its name identifies, and `sample_plain`, which nothing identifies.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Registry;
use crate::schema::{
    AttributePath, AttributeType, Diagnostics, Provider, Resource, Schema, Value, optional, schema,
};

/// The provider.
pub(super) fn registry() -> Registry {
    Registry::new("registry.terraform.io/a/sample", Sample)
        .resource("sample_thing", Thing { identity: Some("name") })
        .resource("sample_plain", Thing { identity: None })
}

struct Sample;

#[derive(Deserialize)]
pub(super) struct Nothing {}

#[async_trait]
impl Provider for Sample {
    type Config = Nothing;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(schema(0, "For tests.", []))
    }

    async fn configure(&self, _: &mut Diagnostics, _: Nothing, _: &str) -> Option<()> {
        Some(())
    }
}

struct Thing {
    identity: Option<&'static str>,
}

#[derive(Serialize, Deserialize)]
struct State {
    #[serde(default = "null")]
    name: Value<String>,
}

fn null() -> Value<String> {
    Value::Null
}

#[async_trait]
impl Resource for Thing {
    type State<'a> = State;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(schema(1, "For tests.", [("name", optional(AttributeType::String, "A name."))]))
    }

    async fn plan_create<'a>(&self, _: &mut Diagnostics, proposed: State) -> Option<State> {
        Some(proposed)
    }

    async fn plan_update<'a>(
        &self,
        _: &mut Diagnostics,
        _: State,
        proposed: State,
    ) -> Option<(State, Vec<AttributePath>)> {
        Some((proposed, Vec::new()))
    }

    async fn create<'a>(&self, _: &mut Diagnostics, planned: State) -> Option<State> {
        Some(planned)
    }

    async fn update<'a>(&self, _: &mut Diagnostics, _: State, planned: State) -> Option<State> {
        Some(planned)
    }

    async fn import<'a>(&self, _: &mut Diagnostics, id: String) -> Option<State> {
        Some(State { name: Value::Value(id) })
    }

    fn identity(&self) -> Option<&'static str> {
        self.identity
    }
}
