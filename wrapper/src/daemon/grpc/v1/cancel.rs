//! `Cancel`: take a drain back, while the runner does not know of it. A client that goes away changes nothing.

use grit_proto::wrapper_v1::{CancelRequest, CancelResponse};
use tonic::Status;

use super::Own;
use crate::daemon::{
    audit::{Asker, Change},
    grpc::errors,
};

pub(super) async fn cancel(own: Own, request: CancelRequest, asker: Asker) -> Result<CancelResponse, Status> {
    let cancelled = own.now().state.stop().map(|stop| stop.id.clone());
    own.supervisor.cancel(&request.id).await.map_err(|error| errors::from_handle_error(&error))?;
    let id = cancelled.as_deref().or(Some(&request.id));
    Change { action: "cancel", outcome: "cancelled", id, ..Change::default() }.log(asker);
    Ok(CancelResponse { status: Some(own.status()) })
}
