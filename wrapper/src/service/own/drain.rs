//! `Drain`: ask the runner to end. Returns when that is under way; a client that goes away cancels nothing.

use std::{sync::Arc, time::Duration};

use grit_proto::wrapper_v1::{DrainRequest, DrainResponse, Mode as WireMode};
use tokio::time::Instant;
use tonic::Status;

use super::Own;
use crate::{
    callback::Callback,
    service::status,
    signals,
    supervisor::{Answer, Mode, Stop},
};

/// Longer ones are no names.
const MAX_ID: usize = 200;
/// Longer ones are no reasons.
const MAX_REASON: usize = 1000;
/// What the clock can hold, and more than any job takes.
const MAX_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

pub(super) async fn drain(own: &Own, request: DrainRequest) -> Result<DrainResponse, Status> {
    let stop = stop(&request)?;
    for callback in &stop.callbacks {
        own.guard.access.check_callback(callback).map_err(status::from_callback_refused)?;
    }
    refuse_self_drain(own, &request.job_url).await?;
    let answer = own.supervisor.stop(stop).await.map_err(|error| status::from_handle_error(&error))?;
    Ok(DrainResponse { status: Some(own.status()), joined: answer == Answer::Already })
}

fn stop(request: &DrainRequest) -> Result<Stop, Status> {
    let mode = match request.mode() {
        WireMode::Unspecified | WireMode::Graceful => Mode::Graceful,
        WireMode::Forceful => Mode::Forceful,
    };
    if request.id.is_empty() || request.id.chars().count() > MAX_ID {
        return Err(status::wrong("id", "expected 1 to 200 characters"));
    }
    if request.id == signals::ID {
        return Err(status::wrong("id", "\"signal\" is the name of drains for the wrapper's own end"));
    }
    if request.reason.chars().count() > MAX_REASON {
        return Err(status::wrong("reason", "expected at most 1000 characters"));
    }
    let mut stop = Stop { reason: Arc::from(request.reason.as_str()), ..Stop::new(&request.id, mode) };
    if let Some(deadline) = request.deadline {
        let wrong = |_| status::wrong("deadline", "expected a duration that is not negative");
        let deadline = Duration::try_from(deadline).map_err(wrong)?;
        stop.deadline = Some(Instant::now() + deadline.min(MAX_DEADLINE));
    }
    if let Some(callback) = request.callback.as_ref().filter(|callback| !callback.url.is_empty()) {
        let callback = Callback::new(&callback.url, &callback.method, &callback.headers)
            .map_err(|error| status::from_callback_error(&error))?;
        stop.callbacks.push(callback);
    }
    Ok(stop)
}

/// A pipeline's job that drains the runner it runs on, and waits for that, waits for itself.
async fn refuse_self_drain(own: &Own, job_url: &str) -> Result<(), Status> {
    if job_url.is_empty() {
        return Ok(());
    }
    let jobs = own.prober.jobs().await.unwrap_or_default();
    match jobs.iter().find(|job| job.is_at(job_url)) {
        Some(job) => Err(status::self_drain(job.id())),
        None => Ok(()),
    }
}
