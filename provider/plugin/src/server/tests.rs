//! A provider for tests, with the resource `sample_thing`.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Registry;
use crate::{
    contract::{Block, Resource},
    problem::Problems,
    schema::{AttributePath, AttributeType, Schema, Value, optional, schema},
};

/// The provider.
pub(super) fn registry() -> Registry {
    Registry::new("registry.terraform.io/a/sample", Sample).resource("sample_thing", Thing)
}

struct Sample;

#[derive(Deserialize)]
pub(super) struct Nothing {}

#[async_trait]
impl Block for Sample {
    type Config = Nothing;
    type Output = ();

    fn schema(&self) -> Schema {
        schema(0, "For tests.", [])
    }

    async fn run(&self, _: Nothing) -> Result<(), Problems> {
        Ok(())
    }
}

pub(super) struct Thing;

#[derive(Serialize, Deserialize)]
pub(super) struct State {
    #[serde(default = "null")]
    name: Value<String>,
}

fn null() -> Value<String> {
    Value::Null
}

#[async_trait]
impl Resource for Thing {
    type State = State;

    fn schema(&self) -> Schema {
        schema(1, "For tests.", [("name", optional(AttributeType::String, "A name."))])
    }

    async fn plan_create(&self, proposed: State) -> Result<State, Problems> {
        Ok(proposed)
    }

    async fn plan_update(&self, _: State, proposed: State) -> Result<(State, Vec<AttributePath>), Problems> {
        Ok((proposed, Vec::new()))
    }

    async fn create(&self, planned: State) -> Result<State, Problems> {
        Ok(planned)
    }

    async fn update(&self, _: State, planned: State) -> Result<State, Problems> {
        Ok(planned)
    }
}
