//! `Drain`: starts a drain and returns without waiting for its end. A valid request is executed even if the client disconnects.

use std::{sync::Arc, time::Duration};

use grit_proto::wrapper_v1::{DrainRequest, DrainResponse, Mode as WireMode};
use tokio::time::{Instant, timeout};
use tonic::Status;
use tracing::{info, warn};

use super::WrapperV1;
use crate::supervise::log_key as key;
use crate::{
    daemon::{
        audit::{Change, Requester},
        grpc::errors,
    },
    supervise::{Answer, DrainId, Mode, Stop, callback::Callback},
};

/// Maximum length of an id.
const MAX_ID: usize = 200;
/// Maximum length of a reason.
const MAX_REASON: usize = 1000;
/// Fits the clock, and is longer than any job.
const MAX_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Timeout of the self-drain check. After it the drain is accepted without the check.
const SELF_DRAIN_CHECK: Duration = Duration::from_secs(1);

pub(super) async fn drain(
    service: WrapperV1,
    request: DrainRequest,
    asker: Requester,
) -> Result<DrainResponse, Status> {
    let stop = stop(&request, asker)?;
    for callback in &stop.callbacks {
        service.guard.access.check_callback(callback).map_err(errors::from_callback_refused)?;
    }
    refuse_self_drain(&service, &request.job_url).await?;
    let accepted = Change {
        action: "drain",
        outcome: "started",
        mode: Some(stop.mode.name()),
        id: Some(&request.id),
        reason: Some(&request.reason),
        deadline_seconds: request.deadline.map(|deadline| deadline.seconds.unsigned_abs()),
        callbacks: (!stop.callbacks.is_empty()).then_some(stop.callbacks.len()),
        ..Change::default()
    };
    let answer = service.supervisor.stop(stop).await.map_err(|error| errors::from_handle_error(&error))?;
    let joined_id = match &answer {
        Answer::Joined(id) => id.as_str(),
        Answer::Done | Answer::Already => "",
    };
    accepted.answered(&answer).log(asker);
    Ok(DrainResponse {
        status: Some(service.status()),
        joined: answer != Answer::Done,
        joined_id: joined_id.to_owned(),
    })
}

fn stop(request: &DrainRequest, asker: Requester) -> Result<Stop, Status> {
    let mode = match request.mode() {
        WireMode::Unspecified | WireMode::Graceful => Mode::Graceful,
        WireMode::Forceful => Mode::Forceful,
    };
    if request.id.is_empty() || request.id.chars().count() > MAX_ID {
        return Err(errors::wrong("id", "expected 1 to 200 characters"));
    }
    let id = DrainId::from(request.id.as_str());
    if id == DrainId::Signal {
        return Err(errors::wrong(
            "id",
            "id \"signal\" is reserved for drains started by a signal to the wrapper",
        ));
    }
    if request.reason.chars().count() > MAX_REASON {
        return Err(errors::wrong("reason", "expected at most 1000 characters"));
    }
    let mut stop = Stop {
        reason: Arc::from(request.reason.as_str()),
        requested_by: Arc::from(asker.to_string()),
        ..Stop::new(id, mode)
    };
    if let Some(deadline) = request.deadline {
        let wrong = |_| errors::wrong("deadline", "expected a duration of 0 or more");
        let deadline = Duration::try_from(deadline).map_err(wrong)?;
        stop.deadline = Some(Instant::now() + deadline.min(MAX_DEADLINE));
    }
    if let Some(callback) = request.callback.as_ref().filter(|callback| !callback.url.is_empty()) {
        let callback = Callback::new(&callback.url, &callback.method, &callback.headers)
            .map_err(|error| errors::from_callback_error(&error))?;
        stop.callbacks.push(callback);
    }
    Ok(stop)
}

/// Rejects a drain by a job of this runner, which would wait for its own job. If the runner does not list its jobs in time, the drain is
/// accepted without this check, because the drain is more important.
async fn refuse_self_drain(service: &WrapperV1, job_url: &str) -> Result<(), Status> {
    if job_url.is_empty() {
        return Ok(());
    }
    let jobs = match timeout(SELF_DRAIN_CHECK, service.prober.jobs()).await {
        Ok(Some(jobs)) => jobs,
        Ok(None) => {
            info!("skipping the self-drain check: the runner's job list is unavailable");
            return Ok(());
        }
        Err(_) => {
            warn!(
                { key::LIMIT_SECONDS } = SELF_DRAIN_CHECK.as_secs(),
                "skipping the self-drain check: timed out reading the runner's job list"
            );
            return Ok(());
        }
    };
    match jobs.iter().find(|job| job.is_at(job_url)) {
        Some(job) => Err(errors::self_drain(job.id())),
        None => Ok(()),
    }
}
