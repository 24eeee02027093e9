//! `GetStatus`: returns the current status.

use grit_proto::wrapper_v1::Status;

use super::WrapperV1;

pub(super) fn get_status(service: &WrapperV1) -> Status {
    service.status()
}
