//! `Drain`: starts a drain, and returns when it is in progress.

use std::time::Duration;

use grit_proto::wrapper_v1::{self as v1, DrainResponse};
use tonic::Status;

use crate::{
    daemon::{
        audit::Requester,
        control::{Control, ControlError, DrainRequest},
    },
    supervise::{Answer, Mode, callback::Callback},
};

pub(super) async fn drain(
    control: &Control,
    request: v1::DrainRequest,
    requester: Requester,
) -> Result<DrainResponse, Status> {
    let answer = control.drain(parse(request)?, requester).await?;
    let joined_id = match &answer {
        Answer::Joined(id) => id.to_string(),
        Answer::Done | Answer::Already => String::new(),
    };
    Ok(DrainResponse { status: Some(control.status().into()), joined: answer != Answer::Done, joined_id })
}

fn parse(request: v1::DrainRequest) -> Result<DrainRequest, ControlError> {
    let mode = match request.mode() {
        v1::Mode::Unspecified | v1::Mode::Graceful => Mode::Graceful,
        v1::Mode::Forceful => Mode::Forceful,
    };
    let negative =
        |_| ControlError::Invalid { field: "deadline", why: "expected a duration of 0 or more".to_owned() };
    let deadline = request.deadline.map(Duration::try_from).transpose().map_err(negative)?;
    let callback = request.callback.filter(|callback| !callback.url.is_empty());
    Ok(DrainRequest {
        id: request.id,
        mode,
        reason: request.reason,
        deadline,
        callback: callback.map(|callback| Callback::new(&callback.url, &callback.method, &callback.headers)),
        job_url: request.job_url,
    })
}
