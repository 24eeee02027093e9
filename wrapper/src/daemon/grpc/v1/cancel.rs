//! `Cancel`: cancels a drain before its signal was sent.

use grit_proto::wrapper_v1::{CancelRequest, CancelResponse};
use tonic::Status;

use crate::daemon::{audit::Requester, control::Control};

pub(super) async fn cancel(
    control: &Control,
    request: &CancelRequest,
    requester: Requester,
) -> Result<CancelResponse, Status> {
    control.cancel(&request.id, requester).await?;
    Ok(CancelResponse { status: Some(control.status().into()) })
}
