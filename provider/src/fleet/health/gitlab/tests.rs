use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt as _, future::BoxFuture};
use grit_ssh::Secret;
use http::{HeaderValue, Method, StatusCode};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    client::{Level, Registration},
    fleet::{
        failure::Reason,
        health::{
            HealthPolicy, Missing, NotHealthy, Outcome,
            tests::{polling, seen},
            wait,
        },
        test_wrapper::Scripted,
    },
    gitlab::{Answer, Connections, GitlabError, Instance, SimulatedGitlab},
};

/// GitLab at the time since the start of the test: the status and body of an answer to this path.
struct Script<F> {
    start: Instant,
    requests: AtomicUsize,
    parallel: AtomicUsize,
    most_parallel: AtomicUsize,
    answer: F,
}

impl<F: Fn(&str, u64) -> (u16, String) + Send + Sync> SimulatedGitlab for Script<F> {
    fn call(&self, _: Method, url: String, _: HeaderValue) -> BoxFuture<'_, Result<Answer, GitlabError>> {
        async move {
            self.requests.fetch_add(1, Ordering::SeqCst);
            let parallel = self.parallel.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_parallel.fetch_max(parallel, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(300)).await;
            self.parallel.fetch_sub(1, Ordering::SeqCst);
            let path = url.split_once("/api/v4").unwrap().1;
            let (status, body) = (self.answer)(path, self.start.elapsed().as_secs());
            let status = StatusCode::from_u16(status).unwrap();
            Ok(Answer { status, next_page: None, has_total: false, body: body.into_bytes() })
        }
        .boxed()
    }
}

fn script<F: Fn(&str, u64) -> (u16, String) + Send + Sync + 'static>(answer: F) -> Arc<Script<F>> {
    let start = Instant::now();
    Arc::new(Script { start, requests: 0.into(), parallel: 0.into(), most_parallel: 0.into(), answer })
}

/// A health check of one manager of this runner, with a system id.
async fn check(number: u64, word: &Arc<GitlabWord>, level: Level) -> Outcome {
    check_with(number, word, level, 0).await
}

/// Jobs have so many of the 4 slots.
async fn check_with(number: u64, word: &Arc<GitlabWord>, level: Level, jobs: u32) -> Outcome {
    let mut snapshot = seen(Level::Polling, Some(Level::Working), None);
    let detail = snapshot.detail.as_mut().unwrap();
    (detail.jobs, detail.concurrent) = (Some(jobs), Some(4));
    detail.registrations = vec![Registration {
        url: "https://gitlab.example".to_owned(),
        system_id: Some("s_1".to_owned()),
        runner_ids: vec![number],
        sections_without_id: 0,
    }];
    let policy = HealthPolicy {
        level,
        timeout: Duration::from_secs(120),
        gitlab: Some(Arc::clone(word)),
        ..polling()
    };
    wait("m1", &&Scripted::new(|_| Ok(snapshot.clone())), &policy, &CancellationToken::new()).await
}

fn word(gitlab: Arc<impl SimulatedGitlab + 'static>) -> Arc<GitlabWord> {
    let instance = Instance::parse("https://gitlab.example").unwrap();
    let connections = Connections::Simulated(gitlab);
    Arc::new(GitlabWord::new(Gitlab::new(instance, &Secret::new("t"), None, None, &connections).unwrap()))
}

fn paused(is_paused: bool) -> (u16, String) {
    (200, format!(r#"{{"id":7,"paused":{is_paused}}}"#))
}

fn managers(system_id: &str, contacted_at: &str, status: &str) -> (u16, String) {
    (200, format!(r#"[{{"system_id":"{system_id}","contacted_at":{contacted_at},"status":"{status}"}}]"#))
}

fn known() -> (u16, String) {
    managers("s_1", "\"2026-01-02T03:04:05Z\"", "online")
}

/// What may still come is waited for; what does not change ends the wait.
#[tokio::test(start_paused = true)]
async fn manager_is_healthy_only_if_gitlab_confirms_it() {
    type Answers = fn(&str, u64) -> (u16, String);
    let cases: [(&str, Answers, Result<u64, &str>); 9] = [
        ("known", |path, _| if path.contains("managers") { known() } else { paused(false) }, Ok(0)),
        ("resumed", |path, now| if path.contains("managers") { known() } else { paused(now < 30) }, Ok(30)),
        ("paused", |path, _| if path.contains("managers") { known() } else { paused(true) }, Err("paused")),
        (
            "late",
            |path, now| match path {
                path if !path.contains("managers") => paused(false),
                _ if now < 20 => (200, "[]".to_owned()),
                _ => known(),
            },
            Ok(20),
        ),
        (
            "other",
            |path, _| match path.contains("managers") {
                true => managers("s_2", "\"2026-01-02T03:04:05Z\"", "online"),
                false => paused(false),
            },
            Err("has not heard of manager s_1"),
        ),
        (
            "never",
            |path, _| match path.contains("managers") {
                true => managers("s_1", "null", "never_contacted"),
                false => paused(false),
            },
            Err("has not heard of manager s_1"),
        ),
        (
            "gone",
            |path, _| match path.contains("managers") {
                true => managers("s_1", "\"2025-01-02T03:04:05Z\"", "offline"),
                false => paused(false),
            },
            Err("has not heard of manager s_1"),
        ),
        (
            "outage",
            |path, now| match path {
                _ if now < 40 => (502, String::new()),
                path if path.contains("managers") => known(),
                _ => paused(false),
            },
            Ok(40),
        ),
        ("forbidden", |_, _| (403, String::new()), Err("403")),
    ];
    for (case, answer, wanted) in cases {
        let begin = Instant::now();
        let outcome = check(7, &word(script(answer)), Level::Polling).await;
        let waited = begin.elapsed().as_secs();
        match (outcome, wanted) {
            (Ok(healthy), Ok(seconds)) => {
                assert!((seconds..seconds + 20).contains(&waited), "{case}: {waited} s");
                assert!(healthy.unconfirmed.is_empty(), "{case}");
            }
            (Err(failure), Err(text)) => {
                let Reason::Problem(NotHealthy::Missing(Missing::Gitlab(doubt))) = &failure.reason else {
                    panic!("{case}: {failure:?}")
                };
                assert!(doubt.to_string().contains(text), "{case}: {doubt}");
                assert_eq!(waited < 10, doubt.is_permanent(), "{case}: {waited} s");
            }
            (outcome, _) => panic!("{case}: {outcome:?}"),
        }
    }
}

/// What cannot be asked is a warning.
#[tokio::test(start_paused = true)]
async fn older_gitlab_without_managers_is_a_warning() {
    let old = script(|path, _| if path.contains("managers") { (404, String::new()) } else { paused(false) });
    let healthy = check(7, &word(old), Level::Process).await.unwrap();
    assert!(matches!(healthy.unconfirmed[..], [NoReceipt::NoManagers]), "{healthy:?}");
}

/// The section of the runner sends no request while the jobs of another section have all slots.
#[tokio::test(start_paused = true)]
async fn unknown_manager_without_a_free_slot_is_a_warning() {
    let gitlab =
        || script(|path, _| if path.contains("managers") { (200, "[]".to_owned()) } else { paused(false) });
    let healthy = check_with(7, &word(gitlab()), Level::Polling, 4).await.unwrap();
    assert!(matches!(healthy.unconfirmed[..], [NoReceipt::NoFreeSlot { runner: 7 }]), "{healthy:?}");
    assert!(check_with(7, &word(gitlab()), Level::Polling, 3).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn fleet_shares_answers_and_asks_few_at_a_time() {
    let gitlab = script(|path, _| if path.contains("managers") { known() } else { paused(false) });
    let one = word(Arc::clone(&gitlab));
    let checks = (0..300).map(|_| check(7, &one, Level::Polling));
    assert!(futures::future::join_all(checks).await.iter().all(Result::is_ok));
    assert_eq!(gitlab.requests.load(Ordering::SeqCst), 2, "one runner");
    let checks = (100..300).map(|runner| check(runner, &one, Level::Polling));
    assert!(futures::future::join_all(checks).await.iter().all(Result::is_ok));
    assert_eq!(gitlab.most_parallel.load(Ordering::SeqCst), PARALLEL);
}
