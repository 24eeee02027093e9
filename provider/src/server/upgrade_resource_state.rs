//! UpgradeResourceState: Terraform shows every stored object before it reads, plans or destroys it.

use grit_proto::tfplugin6 as pb;

use super::{Service, stored_state};
use crate::{call::Operation, wire};

impl Service {
    pub(super) async fn upgrade(
        &self,
        request: pb::upgrade_resource_state::Request,
    ) -> pb::upgrade_resource_state::Response {
        let name = request.type_name.clone();
        let outcome = self
            .run(Operation::Other, "upgrade", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.resource(&request.type_name, diags)?;
                    let mut state = stored_state::parse(request.raw_state, &request.type_name, diags)?;
                    if request.version != entry.schema.version {
                        state = entry.resource.upgrade_json(diags, request.version, state)?;
                    }
                    wire::prune_json(&mut state, &entry.schema);
                    entry.resource.observe_stored_state(&state);
                    Some(stored_state::message(&state))
                })
            })
            .await;
        pb::upgrade_resource_state::Response {
            upgraded_state: outcome.value,
            diagnostics: wire::diagnostics(outcome.diags),
        }
    }
}
