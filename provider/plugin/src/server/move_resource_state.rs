//! MoveResourceState: a `moved` block from another type.

use grit_proto::tfplugin6 as pb;

use super::{Service, stored_state};
use crate::{
    problem::texts,
    schema::{AttributePath, DiagnosticsExt, MoveSource},
    server::call::Operation,
    wire,
};

impl Service {
    pub(super) async fn move_state(
        &self,
        request: pb::move_resource_state::Request,
    ) -> pb::move_resource_state::Response {
        let name = request.target_type_name.clone();
        let outcome = self
            .run(Operation::Other, "move", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.resources.find(&request.target_type_name, diags)?;
                    let stored = request.source_state.unwrap_or_default();
                    let state = stored_state::parse(&stored, &request.source_type_name, diags)?;
                    let source = MoveSource {
                        provider_address: request.source_provider_address,
                        type_name: request.source_type_name,
                        state,
                    };
                    let (from, provider) = (source.type_name.clone(), source.provider_address.clone());
                    let state = entry.resource.move_json(diags, source);
                    if state.is_none() && !diags.has_errors() {
                        texts::moved_not_supported(&request.target_type_name, &from, &provider)
                            .error(AttributePath::root(), diags);
                    }
                    Some(stored_state::message(&state?))
                })
            })
            .await;
        pb::move_resource_state::Response {
            target_state: outcome.value,
            diagnostics: wire::diagnostics(outcome.diags),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    /// Moves an object of this type, as other providers store it, to a thing.
    async fn moved(type_name: &str, provider: &str, state: &Json) -> pb::move_resource_state::Response {
        let json = state.to_string().into_bytes();
        let request = pb::move_resource_state::Request {
            source_provider_address: provider.to_owned(),
            source_type_name: type_name.to_owned(),
            source_state: Some(pb::RawState { json, ..Default::default() }),
            target_type_name: "sample_thing".to_owned(),
            ..Default::default()
        };
        Service::new(super::super::sample::registry()).move_state(request).await
    }

    #[tokio::test]
    async fn other_types_do_not_move_to_a_thing() {
        let response = moved("aws_instance", "registry.terraform.io/hashicorp/aws", &json!({})).await;
        assert_eq!(response.target_state, None);
        assert_eq!(response.diagnostics[0].summary, "Unsupported `moved` source");
    }
}
