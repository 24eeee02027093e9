//! The Validate calls, and PlanAction. Values of the configuration can be unknown.

use std::sync::Arc;

use grit_proto::tfplugin6 as pb;

use super::{
    Service,
    erased::{ErasedBlock, Raw},
};
use crate::{problem::Problem, wire};

const WHAT: &str = "the configuration";

impl Service {
    pub(super) async fn validate_provider(
        &self,
        request: pb::validate_provider_config::Request,
    ) -> pb::validate_provider_config::Response {
        let service = self.clone();
        let work = async move {
            let config = Raw::from_message(request.config, WHAT)?;
            service.0.registry.provider.check(&config).await
        };
        let outcome = self.run("validate", "the provider block", work).await;
        pb::validate_provider_config::Response { diagnostics: outcome.diagnostics }
    }

    pub(super) async fn validate_resource(
        &self,
        request: pb::validate_resource_config::Request,
    ) -> pb::validate_resource_config::Response {
        if wire::has_unknown(request.config.as_ref()) {
            self.0.walks.saw_plan();
        }
        let found = self.0.registry.resources.find(&request.type_name);
        let work = async move {
            let config = Raw::from_message(request.config, WHAT)?;
            found?.item.validate(&config).await
        };
        let outcome = self.run("validate", &request.type_name, work).await;
        pb::validate_resource_config::Response { diagnostics: outcome.diagnostics }
    }

    pub(super) async fn validate_data_source(
        &self,
        request: pb::validate_data_resource_config::Request,
    ) -> pb::validate_data_resource_config::Response {
        let found = self.0.registry.data_sources.find(&request.type_name);
        let diagnostics = self.check("validate", &request.type_name, found, request.config).await;
        pb::validate_data_resource_config::Response { diagnostics }
    }

    pub(super) async fn validate_action(
        &self,
        request: pb::validate_action_config::Request,
    ) -> pb::validate_action_config::Response {
        let found = self.0.registry.actions.find(&request.type_name);
        let diagnostics = self.check("validate", &request.type_name, found, request.config).await;
        pb::validate_action_config::Response { diagnostics }
    }

    /// PlanAction: Terraform stores no plan of an action, so the same check is repeated.
    pub(super) async fn plan_action(&self, request: pb::plan_action::Request) -> pb::plan_action::Response {
        let found = self.0.registry.actions.find(&request.action_type);
        let diagnostics = self.check("plan", &request.action_type, found, request.config).await;
        pb::plan_action::Response { diagnostics, ..Default::default() }
    }

    async fn check(
        &self,
        verb: &'static str,
        name: &str,
        found: Result<Arc<dyn ErasedBlock>, Problem>,
        config: Option<pb::DynamicValue>,
    ) -> Vec<pb::Diagnostic> {
        let work = async move {
            let config = Raw::from_message(config, WHAT)?;
            found?.check(&config).await
        };
        self.run(verb, name, work).await.diagnostics
    }
}
