//! GetProviderSchema and GetMetadata.

use grit_proto::tfplugin6 as pb;

use super::Service;
use crate::wire;

impl Service {
    pub(super) fn provider_schema(&self) -> pb::get_provider_schema::Response {
        let registry = &self.0.registry;
        pb::get_provider_schema::Response {
            provider: Some(wire::schema(&registry.provider.schema())),
            resource_schemas: registry.resources.map(|name, entry| (name, wire::schema(entry.schema()))),
            data_source_schemas: registry.data_sources.map(|name, it| (name, wire::schema(&it.schema()))),
            action_schemas: registry.actions.map(|name, action| {
                (name, pb::ActionSchema { schema: Some(wire::schema(&action.schema())) })
            }),
            server_capabilities: Some(capabilities()),
            ..Default::default()
        }
    }

    pub(super) fn metadata(&self) -> pb::get_metadata::Response {
        use pb::get_metadata::{ActionMetadata, DataSourceMetadata, ResourceMetadata};
        let registry = &self.0.registry;
        pb::get_metadata::Response {
            resources: registry.resources.map(|type_name, _| ResourceMetadata { type_name }),
            data_sources: registry.data_sources.map(|type_name, _| DataSourceMetadata { type_name }),
            actions: registry.actions.map(|type_name, _| ActionMetadata { type_name }),
            server_capabilities: Some(capabilities()),
            ..Default::default()
        }
    }
}

fn capabilities() -> pb::ServerCapabilities {
    pb::ServerCapabilities {
        // Terraform plans a destroy, so that the plan can reject it or warn.
        plan_destroy: true,
        // Schemas do not change: Terraform can cache them.
        get_provider_schema_optional: true,
        move_resource_state: false,
        generate_resource_config: false,
    }
}
