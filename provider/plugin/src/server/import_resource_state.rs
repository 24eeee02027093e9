//! ImportResourceState: an existing object that is not in the state, by its id or its identity.

use grit_proto::tfplugin6 as pb;

use super::Service;
use crate::wire;

impl Service {
    pub(super) async fn import(
        &self,
        request: pb::import_resource_state::Request,
    ) -> pb::import_resource_state::Response {
        let type_name = request.type_name;
        let found = self.0.registry.resources.find(&type_name);
        let work = async move {
            let entry = found?;
            let value = entry.identity.as_ref().and_then(|it| it.value(request.identity.as_ref()?));
            entry.item.import(value.unwrap_or(request.id)).await
        };
        let outcome = self.run("import", &type_name, work).await;
        let state = outcome.value.map(wire::message);
        let imported = state.is_some().then(|| pb::import_resource_state::ImportedResource {
            identity: self.identity(&type_name, state.as_ref()),
            type_name,
            state,
            private: wire::PrivateData::default().encode(),
        });
        pb::import_resource_state::Response {
            imported_resources: imported.into_iter().collect(),
            diagnostics: outcome.diagnostics,
            ..Default::default()
        }
    }
}
