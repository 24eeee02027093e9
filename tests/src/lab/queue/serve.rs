//! The HTTP side of the queue.

use std::{sync::Arc, time::Duration};

use hyper::{Method, Request, StatusCode, body::Incoming};
use serde::{Deserialize, Serialize};

use super::{FaultMode, JobId, Lasts, RunnerProcess, Shared, ledger::LedgerError};
use crate::lab::{
    event::What,
    http::{self, Answer},
};

/// How long a poll without a job is held. GitLab uses 50 s; shorter here, so that a test has several.
const LONG_POLL: Duration = Duration::from_secs(5);
/// How long an offer is valid without acceptance.
const OFFER_STANDS: Duration = Duration::from_secs(2);

/// `POST /api/v4/jobs/request`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobRequest {
    pub(crate) token: String,
    #[serde(flatten)]
    pub(crate) process: RunnerProcess,
    pub(crate) last_update: Option<u64>,
    /// The runner accepts each offer in a second request (two-phase commit). Otherwise the job runs as soon as it is offered.
    pub(crate) two_phase_job_commit: bool,
}

/// The response to a [`JobRequest`] with a job (201).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobOffer {
    pub(crate) id: JobId,
    pub(crate) lasts: Lasts,
}

/// The header of a 204 with the number to send as `last_update`.
pub(crate) const LAST_UPDATE: &str = "x-gitlab-last-update";

/// `PUT /api/v4/jobs/N`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobReport {
    #[serde(flatten)]
    pub(crate) process: RunnerProcess,
    pub(crate) state: ReportedState,
    pub(crate) failure_reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportedState {
    Running,
    Success,
    Failed,
}

/// `POST /lab/events`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) subject: String,
    #[serde(flatten)]
    pub(crate) what: What,
}

pub(super) async fn run(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    http::serve(listener, move |request| route(Arc::clone(&shared), request)).await;
}

async fn route(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match (request.method(), parts.as_slice()) {
        (&Method::POST, ["api", "v4", "jobs", "request"] | ["lab", "router", "get_job"]) => {
            request_job(shared, request).await
        }
        (&Method::PUT, ["api", "v4", "jobs", id]) => match id.parse() {
            Ok(id) => report(shared, id, request).await,
            Err(_) => http::empty(StatusCode::NOT_FOUND),
        },
        (&Method::GET, ["lab", "jobs", id, "released"]) => match id.parse() {
            Ok(id) => released(shared, id).await,
            Err(_) => http::empty(StatusCode::NOT_FOUND),
        },
        (&Method::GET, ["lab", "presence", system_id, pid]) => match pid.parse() {
            Ok(pid) => presence(shared, RunnerProcess { system_id: (*system_id).to_owned(), pid }).await,
            Err(_) => http::empty(StatusCode::NOT_FOUND),
        },
        (&Method::POST, ["lab", "events"]) => match http::read_json::<Record>(request).await {
            Ok(record) => {
                shared.events.record(record.subject, record.what);
                http::empty(StatusCode::OK)
            }
            Err(error) => bad_request(&error),
        },
        _ => http::empty(StatusCode::NOT_FOUND),
    }
}

async fn request_job(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    let asked: JobRequest = match http::read_json(request).await {
        Ok(asked) => asked,
        Err(error) => return bad_request(&error),
    };
    if let Some(bad) = fault_mode(&shared).await {
        return bad;
    }
    let give_up = tokio::time::sleep(LONG_POLL);
    tokio::pin!(give_up);
    let mut last_chance = false;
    loop {
        // Registered before the ledger is read, so that no job submitted in between is missed.
        let news = shared.news.notified();
        if let Some(answer) = answer_now(&shared, &asked, last_chance) {
            let fault_mode = shared.books().fault_mode;
            if let FaultMode::SlowResponse(delay) = fault_mode {
                tokio::time::sleep(delay).await;
            }
            return answer;
        }
        tokio::select! {
            () = news => {
                if let Some(bad) = fault_mode(&shared).await {
                    return bad;
                }
            }
            () = &mut give_up => last_chance = true,
        }
    }
}

/// Responds with a job, a rejection, or "no job"; the last only if there is no newer job or the hold time is over.
fn answer_now(shared: &Arc<Shared>, asked: &JobRequest, last_chance: bool) -> Option<Answer> {
    let mut books = shared.books();
    if books.refused_tokens.contains(&asked.token) {
        books.ledger.refuse(&asked.process);
        return Some(http::text(StatusCode::FORBIDDEN, "403 Forbidden"));
    }
    let hold = asked.last_update == Some(books.generation) && !last_chance;
    let is_paused = books.paused_tokens.contains(&asked.token);
    if hold && (is_paused || !books.ledger.has_queued()) {
        return None;
    }
    if books.polling.insert(asked.process.clone()) {
        shared.events.record(&asked.process.system_id, What::RunnerPolling { pid: asked.process.pid });
    }
    let offered = if is_paused { None } else { books.ledger.offer(&asked.process) };
    let Some(id) = offered else {
        let mut answer = http::empty(StatusCode::NO_CONTENT);
        if let Answer::Reply(reply) = &mut answer {
            reply.headers_mut().insert(LAST_UPDATE, books.generation.into());
        }
        return Some(answer);
    };
    let lasts = books.lasts.get(&id).copied().unwrap_or(Lasts::For(Duration::ZERO));
    if asked.two_phase_job_commit {
        tokio::spawn(withdraw_later(Arc::clone(shared), id));
    } else if books.ledger.accept(id, &asked.process).is_ok() {
        shared.events.record(&asked.process.system_id, What::JobStarted { job: id });
    }
    Some(http::json(StatusCode::CREATED, &JobOffer { id, lasts }))
}

async fn withdraw_later(shared: Arc<Shared>, id: JobId) {
    tokio::time::sleep(OFFER_STANDS).await;
    let mut books = shared.books();
    if books.ledger.withdraw(id) {
        books.generation += 1;
        shared.news.notify_waiters();
    }
}

async fn report(shared: Arc<Shared>, id: JobId, request: Request<Incoming>) -> Answer {
    let report: JobReport = match http::read_json(request).await {
        Ok(report) => report,
        Err(error) => return bad_request(&error),
    };
    if let Some(bad) = fault_mode(&shared).await {
        return bad;
    }
    let mut books = shared.books();
    let why = report.failure_reason.unwrap_or_else(|| "no reason given".to_owned());
    let (booked, what) = match report.state {
        ReportedState::Running => (books.ledger.accept(id, &report.process), What::JobStarted { job: id }),
        ReportedState::Success => (books.ledger.finish(id, &report.process), What::JobFinished { job: id }),
        ReportedState::Failed => {
            (books.ledger.fail(id, &report.process, &why), What::JobLost { job: id, why })
        }
    };
    match booked {
        Ok(()) => {
            // Under the lock, so that the log has the order of the ledger.
            shared.events.record(report.process.system_id, what);
            http::empty(StatusCode::OK)
        }
        Err(LedgerError::NoSuchJob(_)) => http::empty(StatusCode::NOT_FOUND),
        Err(error @ LedgerError::Refused { .. }) => http::text(StatusCode::CONFLICT, error.to_string()),
    }
}

/// Responds when the job may end.
async fn released(shared: Arc<Shared>, id: JobId) -> Answer {
    loop {
        let news = shared.news.notified();
        if shared.books().lasts.get(&id) != Some(&Lasts::UntilReleased) {
            return http::empty(StatusCode::OK);
        }
        news.await;
    }
}

/// Never responds. Dropped when the connection is closed, that is when the process has exited.
async fn presence(shared: Arc<Shared>, process: RunnerProcess) -> Answer {
    struct Present {
        shared: Arc<Shared>,
        process: RunnerProcess,
    }
    impl Drop for Present {
        fn drop(&mut self) {
            self.shared.vanish(|who| *who == self.process, "the runner vanished");
        }
    }
    let _present = Present { shared, process };
    std::future::pending().await
}

/// Applies the fault mode: waits, or returns the response of the fault.
async fn fault_mode(shared: &Shared) -> Option<Answer> {
    let fault_mode = shared.books().fault_mode;
    match fault_mode {
        FaultMode::Fine | FaultMode::SlowResponse(_) => None,
        FaultMode::Slow(delay) => {
            tokio::time::sleep(delay).await;
            None
        }
        FaultMode::Unavailable => Some(http::empty(StatusCode::SERVICE_UNAVAILABLE)),
        FaultMode::Down => Some(Answer::Hangup),
    }
}

fn bad_request(error: &anyhow::Error) -> Answer {
    http::text(StatusCode::BAD_REQUEST, format!("{error:#}"))
}
