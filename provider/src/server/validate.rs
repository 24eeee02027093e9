//! The three Validate calls. Values of the configuration can be unknown.

use grit_proto::tfplugin6 as pb;

use super::Service;
use crate::{
    call::Operation,
    wire::{self, Raw},
};

const WHAT: &str = "the configuration";

impl Service {
    pub(super) async fn validate_provider(
        &self,
        request: pb::validate_provider_config::Request,
    ) -> pb::validate_provider_config::Response {
        let outcome = self
            .run(Operation::Other, "validate", "the provider block", move |service, diags| {
                Box::pin(async move {
                    let config = Raw::from_message(request.config, WHAT, diags)?;
                    service.0.catalog.provider.validate(diags, &config).await
                })
            })
            .await;
        pb::validate_provider_config::Response { diagnostics: wire::diagnostics(outcome.diags) }
    }

    pub(super) async fn validate_resource(
        &self,
        request: pb::validate_resource_config::Request,
    ) -> pb::validate_resource_config::Response {
        if wire::has_unknown(request.config.as_ref()) {
            self.0.walks.saw_plan();
        }
        let name = request.type_name.clone();
        let outcome = self
            .run(Operation::Other, "validate", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.resource(&request.type_name, diags)?;
                    let config = Raw::from_message(request.config, WHAT, diags)?;
                    entry.resource.validate(diags, &config).await
                })
            })
            .await;
        pb::validate_resource_config::Response { diagnostics: wire::diagnostics(outcome.diags) }
    }

    pub(super) async fn validate_data_source(
        &self,
        request: pb::validate_data_resource_config::Request,
    ) -> pb::validate_data_resource_config::Response {
        let name = request.type_name.clone();
        let outcome = self
            .run(Operation::Other, "validate", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.data_source(&request.type_name, diags)?;
                    let config = Raw::from_message(request.config, WHAT, diags)?;
                    entry.source.validate(diags, &config).await
                })
            })
            .await;
        pb::validate_data_resource_config::Response { diagnostics: wire::diagnostics(outcome.diags) }
    }
}
