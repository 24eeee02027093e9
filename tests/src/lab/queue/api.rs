//! The part of GitLab's REST API that people and programs call, with a personal access token: the jobs of a runner, and their end.
//!
//! | request | response |
//! | --- | --- |
//! | `GET /api/v4/runners/ID` | 200 with `paused` and few other fields, 401, 403, 404 |
//! | `GET /api/v4/runners/ID/jobs?system_id&status&order_by=id&sort` | 200 with a page of jobs, 400, 401, 403, 404 |
//! | `GET /api/v4/runners/ID/managers` | 200 with all managers, without pages, 401, 403, 404 |
//! | `GET /api/v4/projects/ID/jobs/N/trace` | 200 with the log, which is empty before a runner has received the job, 401, 404 |
//! | `POST /api/v4/projects/ID/jobs/N/cancel` | 201 with the job, also if it has ended and is not changed, 401, 403, 404 |
//! | `POST /api/v4/projects/ID/jobs/N/retry` | 201 with the new job, which has the same content, 401, 403, 404 |
//!
//! A job of a runner that can end jobs gracefully is `canceling` after its cancellation, until this runner reports its end: for a lost job, for an
//! hour. GitLab retries it before that. Each request can also be answered by 429 with `Retry-After` ([`Queue::limit_api`](super::Queue::limit_api)).
//!
//! Pages are those of GitLab: `page` and `per_page` with the headers `x-next-page` and `link`, without a total if there is a `system_id`; or
//! `pagination=keyset` with `cursor`, and only the header `link`. A job has few of GitLab's fields. There are two projects: the user of each token
//! is less than a Reporter in the second one ([`Queue::hide`](super::Queue::hide)), whose jobs are left out of all lists.
//!
//! As in GitLab, the list of managers has no pages, and contains managers that are gone (`offline`) and managers that have never sent a job request
//! (`contacted_at` is null); a manager appears with its first accepted job request. The details of an instance runner, which every user may read in
//! GitLab, do not exist: all runners belong to a group.

use std::collections::BTreeMap;

use base64::Engine as _;
use hyper::{Request, StatusCode, body::Incoming, header::HeaderValue};
use serde_json::{Value, json};

use super::{
    Books, JobId, Shared,
    ledger::{JobState, Loss},
};
use crate::lab::{
    event::What,
    http::{self, Answer},
};

/// The project of all jobs.
const PROJECT: u64 = 7;
const PROJECT_PATH: &str = "group/project";
const STATUSES: [&str; 13] = [
    "created",
    "waiting_for_resource",
    "preparing",
    "waiting_for_callback",
    "pending",
    "running",
    "success",
    "failed",
    "canceling",
    "canceled",
    "skipped",
    "manual",
    "scheduled",
];

/// The role of a token's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// The user may not see the runners.
    None,
    /// The user owns the runners, and may not cancel jobs.
    Reporter,
    Developer,
}

/// What the path of a request names.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Runner(u64),
    JobsOfRunner(u64),
    Managers(u64),
    /// The log of a job.
    Log {
        project: u64,
        job: JobId,
    },
    Cancel {
        project: u64,
        job: JobId,
    },
    Retry {
        project: u64,
        job: JobId,
    },
}

/// A response without a result.
struct Refusal(StatusCode, &'static str);

impl Shared {
    pub(super) fn call(&self, call: Call, request: &Request<Incoming>) -> Answer {
        let answered = match call {
            Call::Runner(runner) => self.runner(runner, request),
            Call::JobsOfRunner(runner) => self.jobs_of_runner(runner, request),
            Call::Managers(runner) => self.managers(runner, request),
            Call::Log { project, job } => self.log(project, job, request),
            Call::Cancel { project, job } => self.cancel(project, job, request),
            Call::Retry { project, job } => self.retry(project, job, request),
        };
        answered.unwrap_or_else(|Refusal(status, text)| {
            let key = if status == StatusCode::BAD_REQUEST { "error" } else { "message" };
            http::json(status, &json!({ key: text }))
        })
    }

    fn runner(&self, runner: u64, request: &Request<Incoming>) -> Result<Answer, Refusal> {
        let books = self.books();
        may_see(&books, runner, request)?;
        let of_runner = books.runner_ids.iter().find(|(_, known)| **known == runner);
        let is_paused = of_runner.is_some_and(|(token, _)| books.paused_tokens.contains(token));
        let details = json!({
            "id": runner, "description": "", "active": !is_paused, "paused": is_paused, "runner_type": "group_type", "status": "online",
        });
        Ok(http::json(StatusCode::OK, &details))
    }

    /// All managers that have sent a request, with the time of the last one.
    fn managers(&self, runner: u64, request: &Request<Incoming>) -> Result<Answer, Refusal> {
        let books = self.books();
        may_see(&books, runner, request)?;
        let of_runner = books.contacts.iter().filter(|((id, _), _)| *id == runner);
        let mut managers: Vec<_> = of_runner
            .map(|((_, system_id), time)| json!({ "system_id": system_id, "contacted_at": time.to_string(), "status": "online" }))
            .collect();
        managers.push(
            json!({ "system_id": "s_gone", "contacted_at": "2025-01-02T03:04:05.678Z", "status": "offline" }),
        );
        managers.push(json!({ "system_id": "s_new", "contacted_at": null, "status": "never_contacted" }));
        Ok(http::json(StatusCode::OK, &managers))
    }

    fn jobs_of_runner(&self, runner: u64, request: &Request<Incoming>) -> Result<Answer, Refusal> {
        let books = self.books();
        may_see(&books, runner, request)?;
        let parameters = parameters(request.uri().query().unwrap_or_default());
        let parameter = |name: &str| parameters.get(name).map(String::as_str);
        let status = parameter("status");
        if status.is_some_and(|status| !STATUSES.contains(&status)) {
            return Err(Refusal(StatusCode::BAD_REQUEST, "status does not have a valid value"));
        }
        let system_id = parameter("system_id");
        let is_wanted = |job: &JobId| {
            books.runner_of.get(job) == Some(&runner)
                && !books.hidden.contains(job)
                && status.is_none_or(|status| books.ledger.status(*job) == Some(status))
                && system_id.is_none_or(|system_id| books.ledger.system_id(*job) == Some(system_id))
        };
        let mut jobs: Vec<JobId> = books.ledger.ids().filter(is_wanted).collect();
        // Without an order, GitLab has the order of the ids.
        if parameter("order_by").is_some() && parameter("sort") != Some("asc") {
            jobs.reverse();
        }
        let (jobs, headers) = page(&jobs, request.uri().path(), &parameters, &self.url());
        let jobs: Vec<_> = jobs.iter().map(|job| self.job(&books, *job)).collect();
        Ok(with_headers(http::json(StatusCode::OK, &jobs), &headers))
    }

    /// A runner sends the first lines when it starts a job.
    fn log(&self, project: u64, job: JobId, request: &Request<Incoming>) -> Result<Answer, Refusal> {
        let books = self.books();
        let access = access(&books, request)?;
        let is_visible = project == PROJECT && access >= Access::Reporter && !books.hidden.contains(&job);
        let state = books.ledger.job(job).filter(|_| is_visible);
        let text = match state {
            None => return Err(Refusal(StatusCode::NOT_FOUND, "404 Not found")),
            Some(
                JobState::Queued
                | JobState::Offered { .. }
                | JobState::Assigned { .. }
                | JobState::Lost { loss: Loss::NeverStarted, .. },
            ) => "",
            Some(JobState::Running { .. } | JobState::Finished { .. } | JobState::Lost { .. }) => {
                "Running with gitlab-runner 19.2.0\n"
            }
        };
        Ok(http::text(StatusCode::OK, text))
    }

    fn cancel(&self, project: u64, job: JobId, request: &Request<Incoming>) -> Result<Answer, Refusal> {
        let mut books = self.books();
        may_change(&books, project, job, request)?;
        let is_graceful = books.graceful.contains(&job);
        match books.ledger.cancel(job, is_graceful) {
            Ok(None) => {}
            Ok(Some(on)) => {
                let why = "canceled while its runner was alive".to_owned();
                self.events.record(on.system_id, What::JobLost { job, why });
            }
            Err(_) => return Err(Refusal(StatusCode::FORBIDDEN, "403 Forbidden")),
        }
        Ok(http::json(StatusCode::CREATED, &self.job(&books, job)))
    }

    fn retry(&self, project: u64, job: JobId, request: &Request<Incoming>) -> Result<Answer, Refusal> {
        may_change(&self.books(), project, job, request)?;
        self.change(|books| {
            let Ok(next) = books.ledger.retry(job) else {
                return Err(Refusal(StatusCode::FORBIDDEN, "403 Forbidden - Job is not retryable"));
            };
            if let Some(lasts) = books.lasts.get(&job).copied() {
                books.lasts.insert(next, lasts);
                self.events.record("queue", What::JobQueued { job: next, lasts });
            }
            Ok(http::json(StatusCode::CREATED, &self.job(books, next)))
        })
    }

    fn job(&self, books: &Books, job: JobId) -> Value {
        json!({
            "id": job,
            "status": books.ledger.status(job),
            "name": format!("job {job}"),
            "web_url": format!("{}/{PROJECT_PATH}/-/jobs/{job}", self.url()),
            "project": { "id": PROJECT, "path_with_namespace": PROJECT_PATH },
        })
    }
}

/// The response to a token that has sent too many requests.
pub(super) fn too_many_requests() -> Answer {
    let answer = http::text(StatusCode::TOO_MANY_REQUESTS, "Retry later\n");
    with_headers(answer, &vec![("retry-after", "1".to_owned())])
}

fn may_see(books: &Books, runner: u64, request: &Request<Incoming>) -> Result<(), Refusal> {
    let access = access(books, request)?;
    if !books.runner_ids.values().any(|known| *known == runner) {
        return Err(Refusal(StatusCode::NOT_FOUND, "404 Not found"));
    }
    if access < Access::Reporter {
        return Err(Refusal(StatusCode::FORBIDDEN, "403 Forbidden - No access granted"));
    }
    Ok(())
}

/// The access of the token of a request.
fn access(books: &Books, request: &Request<Incoming>) -> Result<Access, Refusal> {
    let token = request.headers().get("private-token").and_then(|token| token.to_str().ok());
    let access = token.and_then(|token| books.api_tokens.get(token)).copied();
    access.ok_or(Refusal(StatusCode::UNAUTHORIZED, "401 Unauthorized"))
}

fn may_change(books: &Books, project: u64, job: JobId, request: &Request<Incoming>) -> Result<(), Refusal> {
    let access = access(books, request)?;
    if project != PROJECT || access < Access::Reporter {
        return Err(Refusal(StatusCode::NOT_FOUND, "404 Project Not Found"));
    }
    if access < Access::Developer {
        return Err(Refusal(StatusCode::FORBIDDEN, "403 Forbidden"));
    }
    if books.ledger.job(job).is_none() || books.hidden.contains(&job) {
        return Err(Refusal(StatusCode::NOT_FOUND, "404 Not found"));
    }
    Ok(())
}

type Parameters = BTreeMap<String, String>;
type Headers = Vec<(&'static str, String)>;

/// The jobs of the requested page, and the headers that lead to the others.
fn page<'a>(jobs: &'a [JobId], path: &str, parameters: &Parameters, url: &str) -> (&'a [JobId], Headers) {
    let number = |name: &str| parameters.get(name).and_then(|text| text.parse::<usize>().ok());
    let size = number("per_page").unwrap_or(20).clamp(1, 100);
    let link = |name: &str, value: String, relation: &str| {
        let mut parameters = parameters.clone();
        parameters.insert("per_page".to_owned(), size.to_string());
        parameters.insert(name.to_owned(), value);
        format!("<{url}{path}?{}>; rel=\"{relation}\"", query(&parameters))
    };
    if parameters.get("pagination").is_some_and(|kind| kind == "keyset") {
        let after = parameters.get("cursor").and_then(|cursor| id_of(cursor));
        let begin =
            after.and_then(|after| jobs.iter().position(|job| *job == after)).map_or(0, |place| place + 1);
        let (jobs, rest) = jobs[begin..].split_at(size.min(jobs.len() - begin));
        let next = jobs.last().filter(|_| !rest.is_empty()).map(|job| cursor(*job));
        return (jobs, next.map(|next| ("link", link("cursor", next, "next"))).into_iter().collect());
    }
    let page = number("page").unwrap_or(1).max(1);
    let begin = ((page - 1) * size).min(jobs.len());
    let end = (begin + size).min(jobs.len());
    let next = (end < jobs.len()).then(|| (page + 1).to_string());
    let mut links: Vec<_> = next.iter().map(|next| link("page", next.clone(), "next")).collect();
    links.push(link("page", "1".to_owned(), "first"));
    let mut headers: Headers = vec![
        ("x-per-page", size.to_string()),
        ("x-page", page.to_string()),
        ("x-next-page", next.unwrap_or_default()),
        ("link", links.join(", ")),
    ];
    if !parameters.contains_key("system_id") {
        headers.push(("x-total", jobs.len().to_string()));
    }
    (&jobs[begin..end], headers)
}

/// An opaque text that names the last job of a page.
fn cursor(job: JobId) -> String {
    base64::engine::general_purpose::URL_SAFE.encode(json!({ "id": job.to_string(), "_kd": "n" }).to_string())
}

fn id_of(cursor: &str) -> Option<JobId> {
    let text = base64::engine::general_purpose::URL_SAFE.decode(cursor).ok()?;
    serde_json::from_slice::<Value>(&text).ok()?["id"].as_str()?.parse().ok()
}

fn parameters(query: &str) -> Parameters {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code =
            tail.get(..2).and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        let (byte, length) = match (first, code) {
            (b'%', Some(byte)) => (byte, 3),
            (b'+', _) => (b' ', 1),
            (first, _) => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn query(parameters: &Parameters) -> String {
    let pairs: Vec<_> =
        parameters.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    pairs.join("&")
}

fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn with_headers(mut answer: Answer, headers: &Headers) -> Answer {
    if let Answer::Reply(reply) = &mut answer {
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                reply.headers_mut().insert(*name, value);
            }
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_decode_to_encoded_values() {
        let values = [("system_id", "r_é%+ &="), ("status", "running")];
        let values: Parameters =
            values.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(query(&values), "status=running&system_id=r_%C3%A9%25%2B%20%26%3D");
        assert_eq!(parameters(&query(&values)), values);
        assert_eq!(parameters("a=b+c&d")["a"], "b c");
    }
}
