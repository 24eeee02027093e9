//! ImportResourceState: an existing object that is not in the state, by its id or its identity.

use grit_proto::tfplugin6 as pb;

use super::Service;
use crate::{server::call::Operation, wire};

impl Service {
    pub(super) async fn import(
        &self,
        request: pb::import_resource_state::Request,
    ) -> pb::import_resource_state::Response {
        let type_name = request.type_name.clone();
        let outcome = self
            .run(Operation::Other, "import", &type_name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.resources.find(&request.type_name, diags)?;
                    let identity = request.identity.as_ref();
                    let value = entry.identity.as_ref().and_then(|it| it.value(identity?));
                    entry.resource.import(diags, value.unwrap_or(request.id)).await
                })
            })
            .await;
        let imported = outcome.value.map(|state| pb::import_resource_state::ImportedResource {
            identity: self.0.catalog.identity(&type_name).and_then(|it| it.of(&state)),
            type_name,
            state: Some(wire::message(state)),
            private: wire::PrivateData::default().encode(),
        });
        pb::import_resource_state::Response {
            imported_resources: imported.into_iter().collect(),
            diagnostics: wire::diagnostics(outcome.diags),
            ..Default::default()
        }
    }
}
