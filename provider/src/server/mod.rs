//! Terraform's calls: decode, find the type, call it, encode. One file for each call.
//!
//! Each call of a resource, data source or provider block runs in a separate task ([`task`]): it continues when the client disconnects,
//! with its stop token cancelled, and a panic in it becomes a diagnostic. [`apply_resource_change`] decides what an apply leaves in the
//! state after a failure. Calls that this server lacks return "Unimplemented", which Terraform accepts for optional calls.

mod apply_resource_change;
mod catalog;
mod configure_provider;
mod dynamic;
mod functions;
mod get_provider_schema;
mod get_resource_identity_schemas;
mod import_resource_state;
mod invoke_action;
mod move_resource_state;
mod plan_resource_change;
mod read_data_source;
mod read_resource;
mod registry;
mod stops;
mod stored_state;
mod task;
mod upgrade_resource_identity;
mod upgrade_resource_state;
mod validate;
mod walks;

use std::sync::Arc;

use futures::stream::BoxStream;
use grit_proto::tfplugin6::{self as pb, provider_server::Provider};
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};

use catalog::Catalog;
pub use registry::Registry;
use stops::Stops;
use walks::Walks;

use crate::log_key;

/// The server. Clones share everything.
#[derive(Clone)]
pub(crate) struct Service(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    stops: Stops,
    walks: Walks,
    calls: TaskTracker,
}

impl Service {
    pub(crate) fn new(registry: Registry) -> Self {
        let catalog = Catalog::new(registry);
        Self(Arc::new(Inner {
            catalog,
            stops: Stops::default(),
            walks: Walks::default(),
            calls: TaskTracker::new(),
        }))
    }

    /// Stops the running calls, and all later create, update and destroy calls.
    pub(crate) fn stop(&self) {
        tracing::info!({ log_key::CALLS } = self.0.calls.len(), "cancelling the running calls");
        self.0.stops.stop();
    }

    /// Waits until no call is running.
    pub(crate) async fn idle(&self) {
        // A closed tracker still accepts calls; without `close`, the wait does not end.
        self.0.calls.close();
        self.0.calls.wait().await;
    }
}

type Answer<T> = Result<Response<T>, Status>;

/// The progress of an action, then its result.
type Events = BoxStream<'static, Result<pb::invoke_action::Event, Status>>;

/// Each call is implemented in the file with its name.
#[tonic::async_trait]
impl Provider for Service {
    async fn get_metadata(
        &self,
        _: Request<pb::get_metadata::Request>,
    ) -> Answer<pb::get_metadata::Response> {
        Ok(Response::new(self.metadata()))
    }

    async fn get_provider_schema(
        &self,
        _: Request<pb::get_provider_schema::Request>,
    ) -> Answer<pb::get_provider_schema::Response> {
        Ok(Response::new(self.provider_schema()))
    }

    async fn validate_provider_config(
        &self,
        request: Request<pb::validate_provider_config::Request>,
    ) -> Answer<pb::validate_provider_config::Response> {
        Ok(Response::new(self.validate_provider(request.into_inner()).await))
    }

    async fn configure_provider(
        &self,
        request: Request<pb::configure_provider::Request>,
    ) -> Answer<pb::configure_provider::Response> {
        Ok(Response::new(self.configure(request.into_inner()).await))
    }

    async fn stop_provider(
        &self,
        _: Request<pb::stop_provider::Request>,
    ) -> Answer<pb::stop_provider::Response> {
        self.stop();
        Ok(Response::new(pb::stop_provider::Response::default()))
    }

    async fn validate_resource_config(
        &self,
        request: Request<pb::validate_resource_config::Request>,
    ) -> Answer<pb::validate_resource_config::Response> {
        Ok(Response::new(self.validate_resource(request.into_inner()).await))
    }

    async fn upgrade_resource_state(
        &self,
        request: Request<pb::upgrade_resource_state::Request>,
    ) -> Answer<pb::upgrade_resource_state::Response> {
        Ok(Response::new(self.upgrade(request.into_inner()).await))
    }

    async fn read_resource(
        &self,
        request: Request<pb::read_resource::Request>,
    ) -> Answer<pb::read_resource::Response> {
        Ok(Response::new(self.read(request.into_inner()).await))
    }

    async fn plan_resource_change(
        &self,
        request: Request<pb::plan_resource_change::Request>,
    ) -> Answer<pb::plan_resource_change::Response> {
        Ok(Response::new(self.plan(request.into_inner()).await))
    }

    async fn apply_resource_change(
        &self,
        request: Request<pb::apply_resource_change::Request>,
    ) -> Answer<pb::apply_resource_change::Response> {
        Ok(Response::new(self.apply(request.into_inner()).await))
    }

    async fn import_resource_state(
        &self,
        request: Request<pb::import_resource_state::Request>,
    ) -> Answer<pb::import_resource_state::Response> {
        Ok(Response::new(self.import(request.into_inner()).await))
    }

    async fn move_resource_state(
        &self,
        request: Request<pb::move_resource_state::Request>,
    ) -> Answer<pb::move_resource_state::Response> {
        Ok(Response::new(self.move_state(request.into_inner()).await))
    }

    async fn get_resource_identity_schemas(
        &self,
        _: Request<pb::get_resource_identity_schemas::Request>,
    ) -> Answer<pb::get_resource_identity_schemas::Response> {
        Ok(Response::new(self.identity_schemas()))
    }

    async fn upgrade_resource_identity(
        &self,
        request: Request<pb::upgrade_resource_identity::Request>,
    ) -> Answer<pb::upgrade_resource_identity::Response> {
        Ok(Response::new(self.upgrade_identity(request.into_inner()).await))
    }

    async fn validate_data_resource_config(
        &self,
        request: Request<pb::validate_data_resource_config::Request>,
    ) -> Answer<pb::validate_data_resource_config::Response> {
        Ok(Response::new(self.validate_data_source(request.into_inner()).await))
    }

    async fn read_data_source(
        &self,
        request: Request<pb::read_data_source::Request>,
    ) -> Answer<pb::read_data_source::Response> {
        Ok(Response::new(self.read_data(request.into_inner()).await))
    }

    async fn get_functions(
        &self,
        _: Request<pb::get_functions::Request>,
    ) -> Answer<pb::get_functions::Response> {
        Ok(Response::new(self.functions()))
    }

    async fn call_function(
        &self,
        request: Request<pb::call_function::Request>,
    ) -> Answer<pb::call_function::Response> {
        Ok(Response::new(self.call_function(request.into_inner()).await))
    }

    async fn validate_action_config(
        &self,
        request: Request<pb::validate_action_config::Request>,
    ) -> Answer<pb::validate_action_config::Response> {
        Ok(Response::new(self.validate_action(request.into_inner()).await))
    }

    async fn plan_action(
        &self,
        request: Request<pb::plan_action::Request>,
    ) -> Answer<pb::plan_action::Response> {
        Ok(Response::new(self.plan_action(request.into_inner()).await))
    }

    async fn invoke_action(&self, request: Request<pb::invoke_action::Request>) -> Answer<Events> {
        Ok(Response::new(self.invoke(request.into_inner())))
    }
}
