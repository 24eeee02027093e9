//! ReadDataSource.

use grit_proto::tfplugin6 as pb;

use super::{Service, dynamic::Raw};
use crate::{server::call::Operation, wire};

impl Service {
    pub(super) async fn read_data(
        &self,
        request: pb::read_data_source::Request,
    ) -> pb::read_data_source::Response {
        let name = request.type_name.clone();
        let outcome = self
            .run(Operation::Other, "read", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.data_sources.find(&request.type_name, diags)?;
                    let config = Raw::from_message(request.config, "the configuration", diags)?;
                    entry.item.read(diags, &config).await
                })
            })
            .await;
        pb::read_data_source::Response {
            state: outcome.value.map(wire::message),
            diagnostics: wire::diagnostics(outcome.diags),
            ..Default::default()
        }
    }
}
