//! `lab_minimal`: one attribute and no behaviour. What Terraform needs for it, it needs for each resource of an external provider.

use async_trait::async_trait;
use grit_plugin::{
    Problems, Resource,
    schema::{AttributePath, AttributeType, Schema, Value, required, schema},
};
use serde::{Deserialize, Serialize};

use super::failed;

/// The resource.
pub struct Minimal;

/// Its attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    name: Value<String>,
}

#[async_trait]
impl Resource for Minimal {
    type State = State;

    fn schema(&self) -> Schema {
        schema(0, "The smallest resource.", [("name", required(AttributeType::String, "A name."))])
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

    async fn destroy(&self, _: State) -> Result<(), Problems> {
        Ok(())
    }

    async fn import(&self, _: String) -> Result<State, Problems> {
        Err(failed("Import is not supported", "No test imports this resource."))
    }
}
