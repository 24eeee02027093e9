//! ReadResource: the current state of an object.

use grit_proto::tfplugin6 as pb;

use super::Service;
use crate::{
    call::Operation,
    wire::{self, Raw},
};

impl Service {
    pub(super) async fn read(&self, request: pb::read_resource::Request) -> pb::read_resource::Response {
        self.0.walks.saw_plan();
        let name = request.type_name.clone();
        let (prior, prior_private) = (request.current_state.clone(), request.private.clone());
        let outcome = self
            .run(Operation::Read, "read", &name, move |service, diags| {
                Box::pin(async move {
                    let entry = service.0.catalog.resource(&request.type_name, diags)?;
                    let state = Raw::from_message(request.current_state, "the state", diags)?;
                    let meta = Raw::from_message(request.provider_meta, "provider_meta", diags)?;
                    let private = Raw::private(request.private);
                    entry.resource.read(diags, &state, &private, &meta).await
                })
            })
            .await;
        let (new_state, private) = match outcome.value {
            Some((state, private)) => (Some(wire::message(state)), private),
            None if outcome.notes.gone => (Some(wire::null_message()), Vec::new()),
            None => (prior, prior_private),
        };
        let new_identity = self.0.catalog.identity(&name).and_then(|it| it.of(&new_state.as_ref()?.msgpack));
        pb::read_resource::Response {
            new_identity,
            new_state,
            private,
            diagnostics: wire::diagnostics(outcome.diags),
            ..Default::default()
        }
    }
}
