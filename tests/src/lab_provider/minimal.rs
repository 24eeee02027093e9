//! `lab_minimal`: one attribute and no behaviour. What Terraform needs for it, it needs for each resource of an external provider.

use async_trait::async_trait;
use grit_plugin::schema::{
    AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Resource, Schema, Value, required, schema,
};
use serde::{Deserialize, Serialize};

/// The resource.
pub struct Minimal;

/// Its attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    name: Value<String>,
}

#[async_trait]
impl Resource for Minimal {
    type State<'a> = State;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        Some(schema(0, "The smallest resource.", [("name", required(AttributeType::String, "A name."))]))
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

    async fn destroy<'a>(&self, _: &mut Diagnostics, _: State) -> Option<()> {
        Some(())
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<State> {
        diags.fail("Import is not supported", "No test imports this resource.");
        None
    }
}
