//! GetFunctions: none yet. CallFunction would stand here beside it.

use grit_proto::tfplugin6 as pb;

use super::Service;

impl Service {
    #[expect(clippy::unused_self, reason = "functions will come from the catalog")]
    pub(super) fn functions(&self) -> pb::get_functions::Response {
        pb::get_functions::Response::default()
    }
}
