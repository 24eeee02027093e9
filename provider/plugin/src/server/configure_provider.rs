//! ConfigureProvider: the provider block, once in each run. Values can be unknown in a plan.

use grit_proto::tfplugin6 as pb;

use super::{Service, dynamic::Raw};
use crate::{server::call::Operation, wire};

impl Service {
    pub(super) async fn configure(
        &self,
        request: pb::configure_provider::Request,
    ) -> pb::configure_provider::Response {
        self.0.stops.begin_run();
        self.0.walks.configured(wire::has_unknown(request.config.as_ref()));
        let outcome = self
            .run(Operation::Other, "configure", "the provider", move |service, diags| {
                Box::pin(async move {
                    let config = Raw::from_message(request.config, "the provider's configuration", diags)?;
                    service.0.catalog.provider.configure(diags, &config, &request.terraform_version).await
                })
            })
            .await;
        pb::configure_provider::Response { diagnostics: wire::diagnostics(outcome.diags) }
    }
}
