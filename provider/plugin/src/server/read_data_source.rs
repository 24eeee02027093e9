//! ReadDataSource.

use grit_proto::tfplugin6 as pb;

use super::{Service, erased::Raw};
use crate::wire;

impl Service {
    pub(super) async fn read_data(
        &self,
        request: pb::read_data_source::Request,
    ) -> pb::read_data_source::Response {
        let found = self.0.registry.data_sources.find(&request.type_name);
        let work = async move {
            let config = Raw::from_message(request.config, "the configuration")?;
            found?.run(&config).await
        };
        let outcome = self.run("read", &request.type_name, work).await;
        pb::read_data_source::Response {
            state: outcome.value.map(wire::message),
            diagnostics: outcome.diagnostics,
            ..Default::default()
        }
    }
}
