//! `Start`: start the runner again. A client that goes away changes nothing.

use grit_proto::wrapper_v1::StartResponse;
use tonic::Status;

use super::Own;
use crate::{
    daemon::{
        audit::{Asker, Change},
        grpc::errors,
    },
    supervise::Answer,
};

pub(super) async fn start(own: Own, asker: Asker) -> Result<StartResponse, Status> {
    let answer = own.supervisor.start().await.map_err(|error| errors::from_handle_error(&error))?;
    Change { action: "start", outcome: "started", ..Change::default() }.answered(&answer).log(asker);
    Ok(StartResponse { status: Some(own.status()), already: answer == Answer::Already })
}
