//! The operations of every API: status, jobs, drain, cancel and start.

use std::{sync::Arc, time::Duration};

use grit_proto::wrapper_v1::{self as v1, DrainRequest, DrainResponse, ListJobsResponse, Status};
use thiserror::Error;
use tokio::{
    sync::watch::{Receiver, Ref},
    time::timeout,
};
use tracing::{error, info, warn};

use super::{
    audit::Change,
    callback::{AllowedUrls, CallbackRefused},
    status,
};
use crate::supervise::{
    Answer, Callback, CallbackError, Cancel, Handle, HandleError, Mode, Stop, StopId, Supervision,
    process::{self, BootId},
};
use crate::{
    daemon::serve::{limits::CallLogLimit, requester::Requester},
    runner::{Health, Job, Prober},
    text::duration,
};

/// The maximum length of an id and of a reason, in characters.
const MAX_ID: usize = 200;
const MAX_REASON: usize = 1000;
/// How long the runner may take to list its jobs, before a drain continues without the check for a self-drain.
const SELF_DRAIN_CHECK: Duration = Duration::from_secs(1);

/// Clones control the same runner.
#[derive(Clone, Debug)]
pub struct Control {
    supervisor: Handle,
    health: Receiver<Health>,
    prober: Prober,
    callbacks: AllowedUrls,
    /// Of the host; `None` if it cannot be read.
    boot: Option<BootId>,
    /// The runner is the main process of a unit: the timeout of a drain by the service manager.
    by_unit: Option<Option<Duration>>,
    /// For rejected requests, and for those that change nothing.
    log_limit: CallLogLimit,
}

/// Why a request was rejected.
#[derive(Debug, Error)]
pub(crate) enum ControlError {
    #[error("{field}: {why}; the runner was not stopped")]
    Invalid { field: &'static str, why: String },
    #[error("callback: {0}; the runner was not stopped")]
    Callback(#[from] CallbackError),
    #[error("callback: {0}; the runner was not stopped")]
    CallbackRefused(#[from] CallbackRefused),
    #[error(
        "the drain was requested by {} of this runner, so the drain would wait indefinitely for that job; run the job on another runner",
        .0.map_or("a job".to_owned(), |id| format!("job {id}"))
    )]
    SelfDrain(Option<u64>),
    #[error("{0}. The runner was not stopped")]
    Launcher(String),
    #[error("job list unavailable: the runner is not running, or has no HTTP server (listen_address)")]
    NoJobs,
    #[error(transparent)]
    Supervisor(#[from] HandleError),
    #[error("the wrapper failed while executing the call; see the wrapper's log")]
    Failed,
}

impl ControlError {
    pub(crate) fn invalid(field: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { field, why: why.into() }
    }
}

impl Control {
    pub fn new(supervisor: Handle, health: Receiver<Health>, prober: Prober, callbacks: AllowedUrls) -> Self {
        let (boot, log_limit) = (process::boot_id().ok(), CallLogLimit::default());
        Self { supervisor, health, prober, callbacks, boot, by_unit: None, log_limit }
    }

    /// On a host of a simulation.
    #[must_use]
    pub(crate) fn in_boot(self, boot: BootId) -> Self {
        Self { boot: Some(boot), ..self }
    }

    /// Of the main process of a unit, whose drains by the service manager have this timeout.
    #[must_use]
    pub fn of_unit(self, drain_timeout: Option<Duration>) -> Self {
        Self { by_unit: Some(drain_timeout), ..self }
    }

    pub fn status(&self) -> Status {
        status::status(self.boot, &self.supervisor.now(), &self.health.borrow())
    }

    /// Whether the supervisor is there, when it has responded. Waits while it is busy.
    pub(crate) async fn responds(&self) -> bool {
        self.supervisor.ping().await.is_ok()
    }

    pub(crate) fn supervision(&self) -> Supervision {
        self.supervisor.now()
    }

    pub(crate) fn health(&self) -> Ref<'_, Health> {
        self.health.borrow()
    }

    /// The changes of the status.
    pub(crate) fn changes(&self) -> Changes {
        Changes { boot: self.boot, supervision: self.supervisor.watch(), health: self.health.clone() }
    }

    pub(crate) async fn jobs(&self) -> Result<ListJobsResponse, ControlError> {
        self.runner_jobs().await.map(status::job_list).ok_or(ControlError::NoJobs)
    }

    async fn runner_jobs(&self) -> Option<Vec<Job>> {
        self.prober.jobs(self.supervision().state.child()?).await
    }

    /// Starts the drain of any API, and returns when it is in progress.
    pub(crate) async fn drain(
        &self,
        request: DrainRequest,
        requester: Requester,
    ) -> Result<DrainResponse, ControlError> {
        let control = self.clone();
        detached(&self.log_limit, async move {
            let stop = Stop { requested_by: Arc::from(requester.to_string()), ..requested_stop(&request)? };
            if !(1..=MAX_ID).contains(&stop.id.as_str().chars().count()) {
                return Err(ControlError::invalid("id", "expected 1 to 200 characters"));
            }
            let stop = match (request.by_service_manager, control.by_unit) {
                (false, _) => stop,
                (true, Some(timeout)) if requester.is_privileged() => stop.within(timeout),
                (true, _) => {
                    let why = "accepted only from root, by a wrapper that is attached to a unit";
                    return Err(ControlError::invalid("by_service_manager", why));
                }
            };
            if (stop.id == StopId::Signal) != request.by_service_manager {
                let why = "\"signal\" is reserved for drains started by a signal to the wrapper";
                return Err(ControlError::invalid("id", why));
            }
            if stop.reason.chars().count() > MAX_REASON {
                return Err(ControlError::invalid("reason", "expected at most 1000 characters"));
            }
            stop.callbacks.iter().try_for_each(|callback| control.callbacks.check(callback))?;
            if !request.job_url.is_empty() {
                control.refuse_self_drain(&request.job_url).await?;
            }
            if stop.mode == Mode::Graceful {
                control.refuse_launcher().await?;
            }
            let answer = control.supervisor.stop(stop.clone()).await?;
            // A forceful request changes a graceful drain that it joins.
            let is_change = answer == Answer::Done || stop.mode == Mode::Forceful;
            if is_change || control.log_limit.allow_log() {
                Change::drain(&stop).answered(&answer).log(requester);
            }
            Ok(DrainResponse {
                status: Some(control.status()),
                joined: answer != Answer::Done,
                joined_id: answer.joined_id().unwrap_or_default(),
            })
        })
        .await
    }

    /// Cancels the drain with this id. An empty id is any drain.
    pub(crate) async fn cancel(&self, id: &str, requester: Requester) -> Result<(), ControlError> {
        let (control, wanted) = (self.clone(), Some(id).filter(|id| !id.is_empty()).map(StopId::from));
        detached(&self.log_limit, async move {
            let in_progress = control.supervision().state.stop().map(|stop| stop.id.clone());
            let by = Arc::from(requester.to_string());
            control.supervisor.cancel(Cancel { id: wanted.clone(), by }).await?;
            let id = in_progress.or(wanted);
            let id = id.as_ref().map(StopId::as_str);
            Change { action: "cancel", outcome: "cancelled", id, ..Change::default() }.log(requester);
            Ok(())
        })
        .await
    }

    pub(crate) async fn start(&self, requester: Requester) -> Result<Answer, ControlError> {
        let control = self.clone();
        detached(&self.log_limit, async move {
            let answer = control.supervisor.start().await?;
            if answer == Answer::Done || control.log_limit.allow_log() {
                Change::of("start").answered(&answer).log(requester);
            }
            Ok(answer)
        })
        .await
    }

    /// SIGQUIT would not drain this runner. Where the check is not possible, the signal is refused later, or its missing effect is reported.
    async fn refuse_launcher(&self) -> Result<(), ControlError> {
        let Some(child) = self.supervision().state.child() else { return Ok(()) };
        let fault = self.prober.launcher_fault(child.pid()).await;
        fault.map_or(Ok(()), |fault| Err(ControlError::Launcher(fault)))
    }

    /// A CI job that drains its own runner, and waits for the end of the drain, would wait for itself. If the runner does not list its jobs in
    /// time, the drain continues without this check.
    async fn refuse_self_drain(&self, job_url: &str) -> Result<(), ControlError> {
        match timeout(SELF_DRAIN_CHECK, self.runner_jobs()).await {
            Ok(Some(jobs)) => match jobs.iter().find(|job| job.is_at(job_url)) {
                Some(job) => Err(ControlError::SelfDrain(job.id())),
                None => Ok(()),
            },
            Ok(None) => {
                info!("skipping the self-drain check: the runner's job list is unavailable");
                Ok(())
            }
            Err(_) => {
                warn!(
                    limit_seconds = SELF_DRAIN_CHECK.as_secs(),
                    "skipping the self-drain check: timed out reading the runner's job list"
                );
                Ok(())
            }
        }
    }
}

/// The stop that a request describes.
pub(crate) fn requested_stop(request: &DrainRequest) -> Result<Stop, ControlError> {
    let mode = match request.mode() {
        v1::Mode::Unspecified | v1::Mode::Graceful => Mode::Graceful,
        v1::Mode::Forceful => Mode::Forceful,
    };
    let deadline = request.deadline.map(|deadline| {
        let deadline = Duration::try_from(deadline).map_err(|_| "expected a duration above 0");
        deadline.and_then(duration::limit).map_err(|why| ControlError::invalid("deadline", why))
    });
    let callbacks = request.callback.as_ref();
    let callbacks =
        callbacks.map(|callback| Callback::list(&callback.url, &callback.method, &callback.headers));
    let stop = Stop {
        reason: Arc::from(request.reason.as_str()),
        callbacks: callbacks.transpose()?.unwrap_or_default(),
        ..Stop::new(request.id.as_str(), mode)
    };
    Ok(stop.within(deadline.transpose()?))
}

/// Waits for changes of the status.
#[derive(Debug)]
pub(crate) struct Changes {
    boot: Option<BootId>,
    supervision: Receiver<Supervision>,
    health: Receiver<Health>,
}

impl Changes {
    /// The current status. Later changes are changes after this one.
    pub(crate) fn status(&mut self) -> Status {
        status::status(self.boot, &self.supervision.borrow_and_update(), &self.health.borrow_and_update())
    }

    /// Waits for the next change. `None` after the end of the supervisor. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<()> {
        tokio::select! {
            biased;
            changed = self.supervision.changed() => changed.ok(),
            // After the end of the prober only the supervisor changes the status.
            Ok(()) = self.health.changed() => Some(()),
        }
    }
}

/// Carries out a request in a separate task: the future of a call is dropped when its client disconnects, and an accepted request must not be
/// lost with it.
async fn detached<T: Send + 'static>(
    log_limit: &CallLogLimit,
    work: impl Future<Output = Result<T, ControlError>> + Send + 'static,
) -> Result<T, ControlError> {
    let result = match tokio::spawn(work).await {
        Ok(result) => result,
        Err(panic) => {
            error!(%panic, "control call panicked; this is a bug in grit-wrapper, please report it");
            Err(ControlError::Failed)
        }
    };
    result.inspect_err(|error| {
        if log_limit.allow_log() {
            warn!(%error, "request rejected");
        }
    })
}

#[cfg(test)]
mod tests {
    use tokio::{sync::Notify, time::sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_is_completed_after_its_client_disconnects() {
        let done = Arc::new(Notify::new());
        let work = {
            let done = Arc::clone(&done);
            async move {
                sleep(Duration::from_secs(5)).await;
                done.notify_one();
                Ok(())
            }
        };
        assert!(timeout(Duration::from_secs(1), detached(&CallLogLimit::default(), work)).await.is_err());
        timeout(Duration::from_secs(10), done.notified()).await.unwrap();
    }
}
