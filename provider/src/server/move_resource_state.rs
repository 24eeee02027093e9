//! MoveResourceState: a `moved` block from another type.

use grit_proto::tfplugin6 as pb;

use super::{Service, stored_state};
use crate::{
    call::Operation,
    explain::protocol,
    schema::{AttributePath, DiagnosticsExt, MoveSource},
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
                    let entry = service.0.catalog.resource(&request.target_type_name, diags)?;
                    let stored = request.source_state.unwrap_or_default();
                    let state = stored_state::parse(&stored, &request.source_type_name, diags)?;
                    let source = MoveSource {
                        provider_address: request.source_provider_address,
                        type_name: request.source_type_name,
                        schema_version: request.source_schema_version,
                        state,
                    };
                    let (from, provider) = (source.type_name.clone(), source.provider_address.clone());
                    let state = entry.resource.move_json(diags, source);
                    if state.is_none() && !diags.has_errors() {
                        protocol::moved_not_supported(&request.target_type_name, &from, &provider)
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
