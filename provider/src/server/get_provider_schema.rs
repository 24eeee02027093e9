//! GetProviderSchema and GetMetadata.

use grit_proto::tfplugin6 as pb;

use super::Service;

impl Service {
    pub(super) fn provider_schema(&self) -> pb::get_provider_schema::Response {
        let catalog = &self.0.catalog;
        pb::get_provider_schema::Response {
            provider: Some(catalog.provider_schema.clone()),
            resource_schemas: catalog
                .resources()
                .map(|(name, entry)| (name.to_owned(), entry.message.clone()))
                .collect(),
            data_source_schemas: catalog
                .data_sources()
                .map(|(name, entry)| (name.to_owned(), entry.message.clone()))
                .collect(),
            functions: self.functions().functions,
            action_schemas: catalog
                .actions()
                .map(|(name, entry)| {
                    (name.to_owned(), pb::ActionSchema { schema: Some(entry.message.clone()) })
                })
                .collect(),
            server_capabilities: Some(capabilities()),
            diagnostics: catalog.complaints.clone(),
            ..Default::default()
        }
    }

    pub(super) fn metadata(&self) -> pb::get_metadata::Response {
        use pb::get_metadata::{ActionMetadata, DataSourceMetadata, FunctionMetadata, ResourceMetadata};
        let catalog = &self.0.catalog;
        pb::get_metadata::Response {
            resources: catalog
                .resources()
                .map(|(name, _)| ResourceMetadata { type_name: name.to_owned() })
                .collect(),
            data_sources: catalog
                .data_sources()
                .map(|(name, _)| DataSourceMetadata { type_name: name.to_owned() })
                .collect(),
            functions: catalog
                .functions()
                .map(|(name, _)| FunctionMetadata { name: name.to_owned() })
                .collect(),
            actions: catalog
                .actions()
                .map(|(name, _)| ActionMetadata { type_name: name.to_owned() })
                .collect(),
            server_capabilities: Some(capabilities()),
            diagnostics: catalog.complaints.clone(),
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
        move_resource_state: true,
        generate_resource_config: false,
    }
}
