//! `Start`: starts the runner again.

use grit_proto::wrapper_v1::StartResponse;
use tonic::Status;

use crate::{
    daemon::{audit::Requester, control::Control},
    supervise::Answer,
};

pub(super) async fn start(control: &Control, requester: Requester) -> Result<StartResponse, Status> {
    let answer = control.start(requester).await?;
    Ok(StartResponse { status: Some(control.status().into()), already: answer == Answer::Already })
}
