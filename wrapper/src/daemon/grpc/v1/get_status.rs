//! `GetStatus`: what is true now. A client that goes away cancels nothing.

use grit_proto::wrapper_v1::Status;

use super::Own;

pub(super) fn get_status(own: &Own) -> Status {
    own.status()
}
