//! GetProviderSchema and GetMetadata.

use grit_proto::tfplugin6 as pb;

use super::Service;

impl Service {
    pub(super) fn provider_schema(&self) -> pb::get_provider_schema::Response {
        let catalog = &self.0.catalog;
        pb::get_provider_schema::Response {
            provider: Some(catalog.provider_schema.clone()),
            resource_schemas: catalog
                .resources
                .iter()
                .map(|(name, entry)| (name, entry.message.clone()))
                .collect(),
            data_source_schemas: catalog
                .data_sources
                .iter()
                .map(|(name, entry)| (name, entry.message.clone()))
                .collect(),
            functions: self.functions().functions,
            action_schemas: catalog
                .actions
                .iter()
                .map(|(name, entry)| (name, pb::ActionSchema { schema: Some(entry.message.clone()) }))
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
                .resources
                .iter()
                .map(|(type_name, _)| ResourceMetadata { type_name })
                .collect(),
            data_sources: catalog
                .data_sources
                .iter()
                .map(|(type_name, _)| DataSourceMetadata { type_name })
                .collect(),
            functions: catalog.functions.iter().map(|(name, _)| FunctionMetadata { name }).collect(),
            actions: catalog.actions.iter().map(|(type_name, _)| ActionMetadata { type_name }).collect(),
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
