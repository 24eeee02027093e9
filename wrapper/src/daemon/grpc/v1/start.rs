//! `Start`: starts the runner. It is executed even if the client disconnects.

use grit_proto::wrapper_v1::StartResponse;
use tonic::Status;

use super::WrapperV1;
use crate::{
    daemon::{
        audit::{Change, Requester},
        grpc::errors,
    },
    supervise::Answer,
};

pub(super) async fn start(service: WrapperV1, asker: Requester) -> Result<StartResponse, Status> {
    let answer = service.supervisor.start().await.map_err(|error| errors::from_handle_error(&error))?;
    Change { action: "start", outcome: "started", ..Change::default() }.answered(&answer).log(asker);
    Ok(StartResponse { status: Some(service.status()), already: answer == Answer::Already })
}
