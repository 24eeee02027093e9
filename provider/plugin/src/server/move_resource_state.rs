//! MoveResourceState: a `moved` block from another type, which is not supported.

use grit_proto::tfplugin6 as pb;

use super::Service;
use crate::{
    problem::{Problems, texts},
    wire,
};

impl Service {
    pub(super) fn move_state(
        request: &pb::move_resource_state::Request,
    ) -> pb::move_resource_state::Response {
        let pb::move_resource_state::Request { target_type_name, source_type_name, .. } = request;
        let refused =
            texts::moved_not_supported(target_type_name, source_type_name, &request.source_provider_address);
        pb::move_resource_state::Response {
            diagnostics: wire::diagnostics(refused.into(), Problems::default()),
            ..Default::default()
        }
    }
}
