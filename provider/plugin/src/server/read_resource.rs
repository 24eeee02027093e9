//! ReadResource: the current state of an object.

use grit_proto::tfplugin6 as pb;

use super::{Service, call::Operation, erased::Raw};
use crate::wire;

impl Service {
    pub(super) async fn read(&self, request: pb::read_resource::Request) -> pb::read_resource::Response {
        self.0.walks.saw_plan();
        let (name, prior) = (request.type_name, request.current_state.clone());
        let found = self.0.registry.resources.find(&name);
        let work = async move {
            let state = Raw::from_message(request.current_state, "the state")?;
            found?.item.read(&state).await
        };
        let outcome = self.run_call(self.call(Operation::Read), "read", &name, work).await;
        let new_state = match outcome.value {
            Some(Some(state)) => Some(wire::message(state)),
            Some(None) => Some(wire::null_message()),
            None => prior,
        };
        pb::read_resource::Response {
            new_state,
            private: wire::PrivateData { kept: outcome.notes.kept, ..Default::default() }.encode(),
            diagnostics: outcome.diagnostics,
            ..Default::default()
        }
    }
}
