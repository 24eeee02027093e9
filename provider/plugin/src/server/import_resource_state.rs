//! ImportResourceState, which is not supported.

use grit_proto::tfplugin6 as pb;

use super::Service;
use crate::{
    problem::{Problems, texts},
    wire,
};

impl Service {
    pub(super) fn import(
        request: &pb::import_resource_state::Request,
    ) -> pb::import_resource_state::Response {
        let refused = texts::import_not_supported(&request.type_name);
        pb::import_resource_state::Response {
            diagnostics: wire::diagnostics(refused.into(), Problems::default()),
            ..Default::default()
        }
    }
}
