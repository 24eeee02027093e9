//! ConfigureProvider: the provider block, once in each run. Values can be unknown in a plan.

use grit_proto::tfplugin6 as pb;

use super::{Service, erased::Raw};
use crate::wire;

impl Service {
    pub(super) async fn configure(
        &self,
        request: pb::configure_provider::Request,
    ) -> pb::configure_provider::Response {
        self.0.stops.begin_run();
        self.0.walks.configured(wire::has_unknown(request.config.as_ref()));
        let service = self.clone();
        let work = async move {
            let config = Raw::from_message(request.config, "the provider's configuration")?;
            service.0.registry.provider.run(&config).await
        };
        let outcome = self.run("configure", "the provider", work).await;
        pb::configure_provider::Response { diagnostics: outcome.diagnostics }
    }
}
