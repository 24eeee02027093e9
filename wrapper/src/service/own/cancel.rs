//! `Cancel`: take a drain back, while the runner does not know of it. A client that goes away changes nothing.

use grit_proto::wrapper_v1::{CancelRequest, CancelResponse};
use tonic::Status;

use super::Own;
use crate::service::status;

pub(super) async fn cancel(own: &Own, request: CancelRequest) -> Result<CancelResponse, Status> {
    own.supervisor.cancel(&request.id).await.map_err(|error| status::from_handle_error(&error))?;
    Ok(CancelResponse { status: Some(own.status()) })
}
