//! GitLab's REST API, as far as the provider uses it: `lab::queue::api`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, pending},
};
use grit_provider::testing::simulation::{Answer, GitlabError, SimulatedGitlab};
use hyper::{Method, StatusCode, header::HeaderValue};
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep};

use super::{
    Fate, Fault, TOKEN, URL,
    answers::{Answers, Question},
};
use crate::simulation::{
    runner::runner_id,
    scenario::Receipt,
    world::{Inner, World},
};

const PROJECT: u64 = 7;

/// The API, as one process of the provider reaches it.
pub(in crate::simulation) struct Api {
    world: Arc<World>,
    answers: Mutex<Answers>,
    /// The process, or a call, was killed: its warnings are lost.
    is_cut: Arc<AtomicBool>,
}

/// What a call is about.
enum Subject {
    Jobs(Question),
    Job(u64),
    Managers,
    Other,
}

impl Api {
    pub(in crate::simulation) fn new(world: Arc<World>) -> Self {
        Self { world, answers: Mutex::default(), is_cut: Arc::default() }
    }

    /// The warnings of the calls are lost from now on.
    pub(in crate::simulation) fn cut(&self) {
        self.is_cut.store(true, Relaxed);
    }

    pub(in crate::simulation) fn answers(&self) -> Answers {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn received(&self, subject: Subject, answer: &Result<Answer, GitlabError>) {
        match (answer, subject) {
            (Ok(answer), subject) if answer.status.is_success() => {
                // An older GitLab lists the jobs of all managers.
                if let Subject::Jobs(question) = subject
                    && !answer.has_total
                {
                    self.locked().page(question, answer);
                }
            }
            (_, subject) => self.fails(&subject),
        }
    }

    /// The call waits for its answer for long.
    fn waits(&self, subject: &Subject) {
        match subject {
            Subject::Jobs(question) => self.locked().waits(&question.instance),
            subject => self.fails(subject),
        }
    }

    /// The call has no good answer.
    fn fails(&self, subject: &Subject) {
        match subject {
            Subject::Jobs(question) => self.locked().fails(&question.instance),
            Subject::Job(id) => {
                if let Some(job) = self.world.now().gitlab.jobs.get_mut(id) {
                    job.has_failed_call = true;
                }
            }
            Subject::Managers => self.locked().managers_fail(),
            Subject::Other => {}
        }
    }
}

/// The provider waits so long for an answer.
const LIMIT: Duration = Duration::from_secs(15);

/// A longer way is a fault of GitLab.
const SLOW: Duration = Duration::from_millis(400);

impl super::Gitlab {
    fn subject(&self, url: &str) -> Subject {
        if let Some(question) = self.question(url) {
            return Subject::Jobs(question);
        }
        if url.ends_with("/managers") {
            return Subject::Managers;
        }
        let job =
            url.split_once("/projects/7/jobs/").and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
        job.map_or(Subject::Other, Subject::Job)
    }

    /// The question for the running jobs of a manager.
    fn question(&self, url: &str) -> Option<Question> {
        let (path, query) = url.split_once('?')?;
        let (_, runner) = path.strip_suffix("/jobs")?.rsplit_once("/runners/")?;
        let section = (0..self.settings.sections).find(|it| runner_id(*it).to_string() == runner)?;
        let value =
            |name| query.split('&').filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name);
        Some(Question {
            instance: value("system_id")?.1.strip_prefix("s_")?.to_owned(),
            section,
            is_last_section: section + 1 == self.settings.sections,
            page: value("page")?.1.parse().ok()?,
            asked: Instant::now(),
        })
    }
}

impl SimulatedGitlab for Api {
    fn call(
        &self,
        method: Method,
        url: String,
        token: HeaderValue,
    ) -> BoxFuture<'_, Result<Answer, GitlabError>> {
        async move {
            let way = self.world.now().api_way();
            if way > SLOW {
                let subject = self.world.now().gitlab.subject(&url);
                if way + way < LIMIT { self.waits(&subject) } else { self.fails(&subject) }
            }
            sleep(way).await;
            let (subject, answer) = {
                let mut now = self.world.now();
                (now.gitlab.subject(&url), now.api(&method, &url, &token, &self.is_cut))
            };
            if answer.is_none() {
                self.fails(&subject);
            }
            match answer {
                Some(answer) => {
                    sleep(way).await;
                    self.received(subject, &answer);
                    answer
                }
                None => pending().await,
            }
        }
        .boxed()
    }
}

impl Inner {
    fn api_way(&mut self) -> Duration {
        if let Some(answer) = self.slow_answer() {
            return answer / 2;
        }
        match self.gitlab.fault() {
            Some(Fault::Slow) => self.random.millis(200, 3_000),
            _ => self.random.millis(5, 400),
        }
    }

    /// `None`: no answer.
    fn api(
        &mut self,
        method: &Method,
        url: &str,
        token: &HeaderValue,
        is_cut: &Arc<AtomicBool>,
    ) -> Option<Result<Answer, GitlabError>> {
        let Some(path) = url.strip_prefix(URL).and_then(|path| path.strip_prefix("/api/v4")) else {
            self.violation("gitlab", format!("the token is sent to {url}"));
            return None;
        };
        let broken = match self.gitlab.fault() {
            Some(Fault::Away) if self.random.percent(50) => {
                return Some(Err(GitlabError::Request("connection refused".to_owned())));
            }
            Some(Fault::Away | Fault::ApiHangs) => return None,
            Some(Fault::Unavailable) => Some(502),
            Some(Fault::ApiLimits) => Some(429),
            Some(Fault::ApiRefuses(status)) => Some(status),
            _ => (token != TOKEN).then_some(401),
        };
        let answer = match broken {
            Some(status) => status_only(status),
            None => self.route(method, path, is_cut),
        };
        self.trace.count(format!("gitlab API {method} {}", answer.status.as_u16()));
        Some(Ok(answer))
    }

    fn route(&mut self, method: &Method, path: &str, is_cut: &Arc<AtomicBool>) -> Answer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let is_read = *method == Method::GET;
        match parts.as_slice() {
            ["runners", runner] if is_read => self.details_of_runner(runner),
            ["runners", runner, "jobs"] if is_read => self.jobs_of_runner(runner, query),
            ["runners", runner, "managers"] if is_read => self.managers(runner),
            ["projects", "7", "jobs", job, "trace"] if is_read => self.job_log(job),
            ["projects", "7", "jobs", _, _] if self.gitlab.settings.receipt == Receipt::ReadOnly => {
                status_only(403)
            }
            ["projects", "7", "jobs", job, "cancel"] => self.cancel_job(job, is_cut),
            ["projects", "7", "jobs", job, "retry"] => self.retry_job(job),
            _ => status_only(404),
        }
    }

    fn details_of_runner(&self, runner: &str) -> Answer {
        match self.section_of_runner(runner) {
            Some(_) => answer(200, &json!({ "id": 1, "paused": self.gitlab.fault() == Some(Fault::Paused) })),
            None => status_only(404),
        }
    }

    fn section_of_runner(&self, runner: &str) -> Option<usize> {
        (0..self.gitlab.settings.sections).find(|it| runner_id(*it).to_string() == runner)
    }

    fn jobs_of_runner(&mut self, runner: &str, query: &str) -> Answer {
        let query: BTreeMap<_, _> = query.split('&').filter_map(|part| part.split_once('=')).collect();
        let Some(section) = self.section_of_runner(runner) else { return status_only(404) };
        let is_old = self.gitlab.settings.is_old_gitlab;
        if let Some(instance) = query.get("system_id").and_then(|id| id.strip_prefix("s_")) {
            self.gitlab.asked.insert((instance.to_owned(), section), Instant::now());
        }
        let system_id = query.get("system_id").filter(|_| !is_old);
        let is_wanted = |owner: &super::Sender| {
            owner.section == section && system_id.is_none_or(|wanted| **wanted == system_id_of(&owner.host))
        };
        let of_runner =
            self.gitlab.jobs.iter().rev().filter(|(_, job)| job.owner.as_ref().is_some_and(is_wanted));
        let only_running = query.get("status") == Some(&"running");
        let listed = of_runner.filter(|(_, job)| (!only_running || job.is_listed()) && !job.is_hidden);
        let status = |job: &super::Job| if job.is_listed() { "running" } else { "success" };
        let all: Vec<Json> = listed.map(|(id, job)| shown(*id, status(job))).collect();
        // The administrator of an instance can set a smaller maximum than the one that is wanted.
        let size = self.gitlab.settings.page;
        let page: usize = query.get("page").and_then(|page| page.parse().ok()).unwrap_or(1);
        let next = if page * size < all.len() { (page + 1).to_string() } else { String::new() };
        if !next.is_empty() {
            self.trace.count("gitlab API: more than one page");
        }
        let jobs: Vec<_> = all.into_iter().skip((page - 1) * size).take(size).collect();
        Answer { next_page: Some(next), has_total: is_old, ..answer(200, &json!(jobs)) }
    }

    /// A manager with a running job sends its log, and so keeps in contact.
    fn managers(&mut self, runner: &str) -> Answer {
        let Some(section) = self.section_of_runner(runner).filter(|_| !self.gitlab.settings.is_old_gitlab)
        else {
            return status_only(404);
        };
        let now = Instant::now();
        let sends = |host: &str| {
            self.gitlab.jobs.values().any(|job| {
                let is_its =
                    job.owner.as_ref().is_some_and(|owner| owner.host == host && owner.section == section);
                is_its && job.fate == Fate::Assigned && job.has_log()
            })
        };
        let of_section = self.gitlab.contacts.iter().filter(|((_, known), _)| *known == section);
        let managers: Vec<_> = of_section
            .map(|((host, _), last)| {
                let contacted_at = if sends(host) { now } else { *last };
                json!({ "system_id": system_id_of(host), "contacted_at": format!("{contacted_at:?}") })
            })
            .collect();
        answer(200, &json!(managers))
    }

    fn job_log(&mut self, id: &str) -> Answer {
        let Some(job) = id.parse().ok().and_then(|id: u64| self.gitlab.jobs.get(&id)) else {
            return status_only(404);
        };
        let body = if job.has_log() { b"Running with gitlab-runner".to_vec() } else { Vec::new() };
        Answer { body, ..status_only(200) }
    }

    fn cancel_job(&mut self, id: &str, is_cut: &Arc<AtomicBool>) -> Answer {
        let Ok(id) = id.parse() else { return status_only(404) };
        let Some(job) = self.gitlab.jobs.get_mut(&id) else { return status_only(404) };
        // As GitLab: no error, and no change.
        if !job.is_listed() {
            return answer(201, &shown(id, "success"));
        }
        let has_log = job.has_log();
        // Its runner runs, and has received it or is going to.
        let is_held = job.fate == Fate::Assigned;
        job.fate = Fate::Cancelled;
        job.unlisted = Some(Instant::now());
        job.canceller = Some(Arc::clone(is_cut));
        self.trace.count("lost job cancelled");
        self.log("gitlab", format!("job {id} is cancelled"));
        // drain-start: such a job "can run in another process of the host with the same system id".
        if is_held || has_log {
            self.violation("gitlab", format!("job {id} is cancelled, which a runner has received"));
        }
        // GitLab waits for the runner.
        answer(201, &shown(id, "canceling"))
    }

    fn retry_job(&mut self, id: &str) -> Answer {
        let Ok(id) = id.parse() else { return status_only(404) };
        if self.gitlab.jobs.get(&id).is_none_or(|job| job.fate != Fate::Cancelled) {
            return status_only(403);
        }
        let next = self.gitlab.add_job(false);
        if let Some(job) = self.gitlab.jobs.get_mut(&id) {
            job.fate = Fate::Retried(next);
        }
        self.wake_requests();
        self.trace.count("lost job queued again");
        self.log("gitlab", format!("job {id} is queued again as job {next}"));
        answer(201, &shown(next, "pending"))
    }
}

/// The content of `.runner_system_id`.
pub(in crate::simulation) fn system_id_of(instance: &str) -> String {
    format!("s_{instance}")
}

fn shown(id: u64, status: &str) -> Json {
    json!({ "id": id, "status": status, "web_url": format!("{URL}/-/jobs/{id}"), "project": { "id": PROJECT } })
}

fn status_only(status: u16) -> Answer {
    answer(status, &json!({ "message": status }))
}

fn answer(status: u16, body: &Json) -> Answer {
    Answer {
        status: StatusCode::from_u16(status).expect("a status"),
        next_page: None,
        has_total: false,
        body: body.to_string().into_bytes(),
    }
}
