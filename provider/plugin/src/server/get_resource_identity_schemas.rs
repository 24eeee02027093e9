//! GetResourceIdentitySchemas: what identifies the objects of each type (Terraform 1.12).

use grit_proto::tfplugin6 as pb;

use super::Service;

impl Service {
    pub(super) fn identity_schemas(&self) -> pb::get_resource_identity_schemas::Response {
        let schemas: Vec<_> = self.0.registry.resources.map(|name, entry| {
            let identity = entry.identity.as_ref()?;
            Some((name, identity.schema(entry.schema())?))
        });
        pb::get_resource_identity_schemas::Response {
            identity_schemas: schemas.into_iter().flatten().collect(),
            ..Default::default()
        }
    }

    /// The identity of an object with this state, if its type has one.
    pub(super) fn identity(
        &self,
        type_name: &str,
        state: Option<&pb::DynamicValue>,
    ) -> Option<pb::ResourceIdentityData> {
        self.0.registry.resources.find(type_name).ok()?.identity.as_ref()?.of(&state?.msgpack)
    }
}
