//! `Drain`: ask the runner to end. Returns when that is under way. Once the request is valid, the drain no longer depends on its client.

use std::{sync::Arc, time::Duration};

use grit_proto::wrapper_v1::{DrainRequest, DrainResponse, Mode as WireMode};
use tokio::time::{Instant, timeout};
use tonic::Status;
use tracing::{info, warn};

use super::WrapperV1;
use crate::{
    daemon::{
        audit::{Asker, Change},
        grpc::errors,
    },
    supervise::{Answer, DrainId, Mode, Stop, callback::Callback},
};

/// Longer ones are no names.
const MAX_ID: usize = 200;
/// Longer ones are no reasons.
const MAX_REASON: usize = 1000;
/// What the clock can hold, and more than any job takes.
const MAX_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long the runner may take to list its jobs before a drain goes ahead without the check for a self-drain.
const SELF_DRAIN_CHECK: Duration = Duration::from_secs(1);

pub(super) async fn drain(
    service: WrapperV1,
    request: DrainRequest,
    asker: Asker,
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

fn stop(request: &DrainRequest, asker: Asker) -> Result<Stop, Status> {
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

/// A pipeline's job that drains the runner it runs on, and waits for that, waits for itself. A runner that does not list its jobs in time is
/// drained without this check: a drain is worth more than the check.
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
                limit_seconds = SELF_DRAIN_CHECK.as_secs(),
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
