//! `Cancel`: cancels a drain before SIGQUIT is sent. It is executed even if the client disconnects.

use grit_proto::wrapper_v1::{CancelRequest, CancelResponse};
use tonic::Status;

use super::WrapperV1;
use crate::{
    daemon::{
        audit::{Change, Requester},
        grpc::errors,
    },
    supervise::DrainId,
};

pub(super) async fn cancel(
    service: WrapperV1,
    request: CancelRequest,
    asker: Requester,
) -> Result<CancelResponse, Status> {
    let wanted = Some(request.id.as_str()).filter(|id| !id.is_empty()).map(DrainId::from);
    let in_progress = service.now().state.stop().map(|stop| stop.id.clone());
    service.supervisor.cancel(wanted.clone()).await.map_err(|error| errors::from_handle_error(&error))?;
    let id = in_progress.or(wanted);
    let id = id.as_ref().map(DrainId::as_str);
    Change { action: "cancel", outcome: "cancelled", id, ..Change::default() }.log(asker);
    Ok(CancelResponse { status: Some(service.status()) })
}
