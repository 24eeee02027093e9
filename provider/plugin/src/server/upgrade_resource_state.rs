//! UpgradeResourceState: Terraform sends each stored object before it reads, plans or destroys it.

use grit_proto::tfplugin6 as pb;

use super::{Service, stored_state};
use crate::{
    problem::texts,
    schema::{AttributePath, DiagnosticsExt},
    server::call::Operation,
    wire,
};

impl Service {
    pub(super) async fn upgrade(
        &self,
        request: pb::upgrade_resource_state::Request,
    ) -> pb::upgrade_resource_state::Response {
        let name = request.type_name.clone();
        let outcome = self
            .run(Operation::Other, "upgrade", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.resources.find(&request.type_name, diags)?;
                    let stored = request.raw_state.unwrap_or_default();
                    let mut state = stored_state::parse(&stored, &request.type_name, diags)?;
                    let current = request.version == entry.schema.version;
                    if !current {
                        let upgraded = entry.resource.upgrade_json(diags, request.version, state);
                        if upgraded.is_none() && !diags.has_errors() {
                            texts::state_version(&request.type_name, request.version)
                                .error(AttributePath::root(), diags);
                        }
                        state = upgraded?;
                    }
                    let pruned = wire::prune_json(&mut state, &entry.schema);
                    entry.resource.observe_stored_state(&state);
                    // Unchanged if possible: parsing loses digits of long numbers.
                    let as_stored = current && !pruned;
                    Some(if as_stored {
                        stored_state::unchanged(stored)
                    } else {
                        stored_state::message(&state)
                    })
                })
            })
            .await;
        pb::upgrade_resource_state::Response {
            upgraded_state: outcome.value,
            diagnostics: wire::diagnostics(outcome.diags),
        }
    }
}
