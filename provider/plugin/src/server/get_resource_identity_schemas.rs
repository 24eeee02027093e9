//! GetResourceIdentitySchemas: what identifies the objects of each type (Terraform 1.12).

use grit_proto::tfplugin6 as pb;

use super::Service;

impl Service {
    pub(super) fn identity_schemas(&self) -> pb::get_resource_identity_schemas::Response {
        let schemas = self.0.catalog.resources.iter().filter_map(|(name, entry)| {
            let identity = entry.identity.as_ref()?;
            Some((name, identity.schema().clone()))
        });
        pb::get_resource_identity_schemas::Response {
            identity_schemas: schemas.collect(),
            ..Default::default()
        }
    }
}
