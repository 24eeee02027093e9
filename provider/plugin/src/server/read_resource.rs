//! ReadResource: the current state of an object.

use grit_proto::tfplugin6 as pb;

use super::{Service, dynamic::Raw};
use crate::{server::call::Operation, wire};

impl Service {
    pub(super) async fn read(&self, request: pb::read_resource::Request) -> pb::read_resource::Response {
        self.0.walks.saw_plan();
        let name = request.type_name.clone();
        let prior = request.current_state.clone();
        let outcome = self
            .run(Operation::Read, "read", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.resources.find(&request.type_name, diags)?;
                    let state = Raw::from_message(request.current_state, "the state", diags)?;
                    entry.resource.read(diags, &state).await
                })
            })
            .await;
        let new_state = match outcome.value {
            Some(state) => Some(wire::message(state)),
            None if outcome.notes.gone => Some(wire::null_message()),
            None => prior,
        };
        let new_identity = self.0.catalog.identity(&name).and_then(|it| it.of(&new_state.as_ref()?.msgpack));
        pb::read_resource::Response {
            new_identity,
            new_state,
            private: wire::PrivateData { kept: outcome.notes.kept, ..Default::default() }.encode(),
            diagnostics: wire::diagnostics(outcome.diags),
            ..Default::default()
        }
    }
}
