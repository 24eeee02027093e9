//! `GetStatus`: the current status.

use grit_proto::wrapper_v1::Status;

use crate::daemon::control::Control;

pub(super) fn get_status(control: &Control) -> Status {
    control.status().into()
}
