//! The HTTP side of the queue.

use std::{sync::Arc, time::Duration};

use hyper::{Method, Request, StatusCode, body::Incoming};
use serde::{Deserialize, Serialize};

use super::{
    FaultMode, JobId, Lasts, LongPolling, RunnerProcess, Shared,
    api::{self, Call},
    ledger::LedgerError,
};
use crate::lab::{
    event::What,
    http::{self, Answer},
};

/// How long an offer is valid without confirmation.
const OFFER_STANDS: Duration = Duration::from_secs(2);

/// `POST /api/v4/jobs/request`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobRequest {
    pub(crate) token: String,
    #[serde(flatten)]
    pub(crate) process: RunnerProcess,
    pub(crate) last_update: Option<u64>,
    pub(crate) info: Info,
}

/// The description of a runner in its job requests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Info {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) features: Features,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Features {
    /// The runner can confirm each job in a second request.
    pub(crate) two_phase_job_commit: bool,
    /// A job whose cancellation was requested ends its `after_script`: GitLab waits for that.
    #[serde(default)]
    pub(crate) cancel_gracefully: bool,
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
        // The parts of a log are not kept.
        (&Method::PATCH, ["api", "v4", "jobs", _, "trace"]) => {
            fault(&shared).unwrap_or_else(|| http::empty(StatusCode::ACCEPTED))
        }
        (&Method::GET, ["api", "v4", "runners", id, what @ ("jobs" | "managers")]) => {
            match (id.parse(), *what) {
                (Ok(runner), "jobs") => call(shared, Call::JobsOfRunner(runner), request).await,
                (Ok(runner), _) => call(shared, Call::Managers(runner), request).await,
                (Err(_), _) => http::empty(StatusCode::NOT_FOUND),
            }
        }
        (&Method::GET, ["api", "v4", "runners", id]) => match id.parse() {
            Ok(runner) => call(shared, Call::Runner(runner), request).await,
            Err(_) => http::empty(StatusCode::NOT_FOUND),
        },
        (&Method::GET, ["api", "v4", "projects", project, "jobs", job, "trace"]) => {
            match (project.parse(), job.parse()) {
                (Ok(project), Ok(job)) => call(shared, Call::Log { project, job }, request).await,
                _ => http::empty(StatusCode::NOT_FOUND),
            }
        }
        (&Method::POST, ["api", "v4", "projects", project, "jobs", job, change @ ("cancel" | "retry")]) => {
            match (project.parse(), job.parse(), *change) {
                (Ok(project), Ok(job), "cancel") => {
                    call(shared, Call::Cancel { project, job }, request).await
                }
                (Ok(project), Ok(job), _) => call(shared, Call::Retry { project, job }, request).await,
                _ => http::empty(StatusCode::NOT_FOUND),
            }
        }
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
    let is_handled = match hold(&shared, &asked).await {
        Ok(is_handled) => is_handled,
        Err(fault) => return fault,
    };
    let (answer, job) =
        if is_handled { handle(&shared, &asked) } else { (http::empty(StatusCode::NO_CONTENT), None) };
    let recorded = Recorded::open(&shared, &asked, job);
    // A job in the answer is assigned: dropping this future here, because the client has disconnected, does not change that.
    latency(&shared).await;
    if let Some(recorded) = recorded {
        recorded.respond();
    }
    let mut books = shared.books();
    if matches!(&answer, Answer::Reply(reply) if reply.status() == StatusCode::FORBIDDEN) {
        books.ledger.refuse(&asked.process);
    } else {
        books.ledger.polled(&asked.process);
        if books.polling.insert(asked.process.clone()) {
            shared.events.record(&asked.process.system_id, What::RunnerPolling { pid: asked.process.pid });
        }
    }
    answer
}

/// Holds a request without news, as Workhorse does. Returns whether the request is handled after that, or the fault that ended the wait.
async fn hold(shared: &Shared, asked: &JobRequest) -> Result<bool, Answer> {
    let long_polling = shared.books().settings.long_polling;
    let time_over = tokio::time::sleep(long_polling.limit());
    tokio::pin!(time_over);
    let mut held = None;
    loop {
        // Registered before the ledger is read, so that no change in between is missed.
        let news = shared.news.notified();
        if let Some(fault) = fault(shared) {
            return Err(fault);
        }
        let is_handled = held.is_none() || matches!(long_polling, LongPolling::AssignsLate(_));
        let has_news = asked.last_update != Some(shared.books().generation);
        if has_news || long_polling == LongPolling::Off || time_over.is_elapsed() {
            return Ok(is_handled);
        }
        held.get_or_insert_with(|| Held::begin(shared));
        tokio::select! {
            () = news => {}
            () = &mut time_over => {}
        }
    }
}

/// Counts a held request, until it is answered or its client disconnects.
struct Held<'a>(&'a Shared);

impl<'a> Held<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.books().held += 1;
        Self(shared)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.books().held -= 1;
    }
}

/// A recorded job request. If it is dropped before the response, the client has disconnected.
struct Recorded<'a> {
    shared: &'a Shared,
    request: u64,
    job: Option<JobId>,
    is_answered: bool,
}

impl<'a> Recorded<'a> {
    fn open(shared: &'a Shared, asked: &JobRequest, job: Option<JobId>) -> Option<Self> {
        let mut books = shared.books();
        let count = books.recorded_requests.as_mut()?;
        *count += 1;
        let request = *count;
        if let Some(job) = job {
            books.request_of.insert(job, request);
        }
        let opened = What::JobRequestOpened { request, token: asked.token.clone(), job };
        shared.events.record(&asked.process.system_id, opened);
        Some(Self { shared, request, job, is_answered: false })
    }

    fn respond(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        if self.is_answered && self.job.is_some() {
            return;
        }
        let closed = What::JobRequestClosed { request: self.request, cancelled: !self.is_answered };
        self.shared.events.record("queue", closed);
    }
}

/// Responds with a job, a rejection, or "no job", as Rails does. Also returns the job.
fn handle(shared: &Arc<Shared>, asked: &JobRequest) -> (Answer, Option<JobId>) {
    let mut books = shared.books();
    if books.refused_tokens.contains(&asked.token) {
        return (http::text(StatusCode::FORBIDDEN, "403 Forbidden"), None);
    }
    let runner = books.runner_id(&asked.token);
    books.contacted(runner, &asked.process.system_id);
    let is_paused = books.paused_tokens.contains(&asked.token);
    let two_phase = asked.info.features.two_phase_job_commit && books.settings.two_phase_commit;
    let assigned = if is_paused { None } else { books.ledger.assign(&asked.process, two_phase) };
    let Some(id) = assigned else {
        let mut answer = http::empty(StatusCode::NO_CONTENT);
        if let Answer::Reply(reply) = &mut answer {
            reply.headers_mut().insert(LAST_UPDATE, books.generation.into());
        }
        return (answer, None);
    };
    books.runner_of.insert(id, runner);
    if asked.info.features.cancel_gracefully {
        books.graceful.insert(id);
    }
    if two_phase {
        tokio::spawn(withdraw_later(Arc::clone(shared), id));
    }
    let lasts = books.lasts.get(&id).copied().unwrap_or(Lasts::For(Duration::ZERO));
    (http::json(StatusCode::CREATED, &JobOffer { id, lasts }), Some(id))
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
    if let Some(fault) = fault(&shared) {
        return fault;
    }
    let answer = record(&shared, id, report);
    latency(&shared).await;
    let request = shared.books().request_of.remove(&id);
    if let Some(request) = request {
        shared.events.record("queue", What::JobRequestClosed { request, cancelled: false });
    }
    answer
}

fn record(shared: &Shared, id: JobId, report: JobReport) -> Answer {
    let mut books = shared.books();
    if let Some(runner) = books.runner_of.get(&id).copied() {
        books.contacted(runner, &report.process.system_id);
    }
    let (booked, what) = match report.state {
        ReportedState::Running => (books.ledger.start(id, &report.process), What::JobStarted { job: id }),
        ReportedState::Success => (books.ledger.finish(id, &report.process), What::JobFinished { job: id }),
        ReportedState::Failed => {
            let why = report.failure_reason.unwrap_or_else(|| "no reason given".to_owned());
            (books.ledger.fail(id, &report.process), What::JobLost { job: id, why })
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

async fn call(shared: Arc<Shared>, call: Call, request: Request<Incoming>) -> Answer {
    if let Some(fault) = fault(&shared) {
        return fault;
    }
    if shared.books().is_limited() {
        return api::too_many_requests();
    }
    let answer = shared.call(call, &request);
    latency(&shared).await;
    answer
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

/// The response of the fault mode.
fn fault(shared: &Shared) -> Option<Answer> {
    match shared.books().fault_mode {
        FaultMode::Fine => None,
        FaultMode::Unavailable => Some(http::empty(StatusCode::SERVICE_UNAVAILABLE)),
        FaultMode::Down => Some(Answer::Hangup),
    }
}

async fn latency(shared: &Shared) {
    let latency = shared.books().settings.next_latency();
    tokio::time::sleep(latency).await;
}

fn bad_request(error: &anyhow::Error) -> Answer {
    http::text(StatusCode::BAD_REQUEST, format!("{error:#}"))
}
