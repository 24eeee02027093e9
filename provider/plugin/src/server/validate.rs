//! The Validate calls, and PlanAction. Values of the configuration can be unknown.

use grit_proto::tfplugin6 as pb;

use super::{Service, dynamic::Raw};
use crate::{server::call::Operation, wire};

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
                    let entry = service.0.catalog.resources.find(&request.type_name, diags)?;
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
                    let entry = service.0.catalog.data_sources.find(&request.type_name, diags)?;
                    let config = Raw::from_message(request.config, WHAT, diags)?;
                    entry.item.validate(diags, &config).await
                })
            })
            .await;
        pb::validate_data_resource_config::Response { diagnostics: wire::diagnostics(outcome.diags) }
    }
    pub(super) async fn validate_action(
        &self,
        request: pb::validate_action_config::Request,
    ) -> pb::validate_action_config::Response {
        let diagnostics = self.check_action("validate", request.type_name, request.config).await;
        pb::validate_action_config::Response { diagnostics }
    }

    /// PlanAction: Terraform stores no plan of an action, so the same check is repeated.
    pub(super) async fn plan_action(&self, request: pb::plan_action::Request) -> pb::plan_action::Response {
        let diagnostics = self.check_action("plan", request.action_type, request.config).await;
        pb::plan_action::Response { diagnostics, ..Default::default() }
    }

    async fn check_action(
        &self,
        verb: &'static str,
        name: String,
        config: Option<pb::DynamicValue>,
    ) -> Vec<pb::Diagnostic> {
        let type_name = name.clone();
        let outcome = self
            .run(Operation::Other, verb, &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.actions.find(&type_name, diags)?;
                    let config = Raw::from_message(config, WHAT, diags)?;
                    entry.item.validate(diags, &config).await
                })
            })
            .await;
        wire::diagnostics(outcome.diags)
    }
}
