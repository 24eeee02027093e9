use std::{sync::Arc, time::Duration};

use super::*;
use crate::gitlab::{Answer, Connections, Instance, SimulatedGitlab};
use futures::{
    FutureExt as _,
    future::{BoxFuture, pending},
};
use grit_proto::wrapper_v1 as v1;
use grit_ssh::Secret;
use http::{HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use tokio::time::sleep;

mod retried;

/// What GitLab does with a request.
#[derive(Clone, Debug)]
enum Reply {
    Jobs(Vec<u64>),
    /// A list of managers, with the time of the last contact.
    Contact(&'static str),
    Log(&'static str),
    /// A job with this status.
    Job(u64, &'static str),
    Status(u16),
    Failed(GitlabError),
    Never,
}

/// A GitLab that replies to a request according to a script, after some time.
struct Fake<S> {
    start: Instant,
    script: S,
    takes: Duration,
    changes: Mutex<Vec<String>>,
}

impl<S: Fn(u64, &str) -> Reply + Send + Sync> SimulatedGitlab for Fake<S> {
    fn call(
        &self,
        method: Method,
        url: String,
        _: HeaderValue,
    ) -> BoxFuture<'_, Result<Answer, GitlabError>> {
        async move {
            let path = url.strip_prefix("https://gitlab.example/api/v4").unwrap().split('?').next().unwrap();
            if method != Method::GET {
                self.changes.lock().push(path.to_owned());
            }
            let reply = (self.script)(self.start.elapsed().as_secs(), path);
            sleep(self.takes).await;
            let job = |id, status| {
                format!(r#"{{"id":{id},"status":"{status}","web_url":"u{id}","project":{{"id":5}}}}"#)
            };
            let (status, body) = match reply {
                Reply::Jobs(ids) => {
                    let jobs: Vec<_> = ids.iter().map(|id| job(*id, "running")).collect();
                    (200, format!("[{}]", jobs.join(",")))
                }
                Reply::Contact(time) => {
                    (200, format!(r#"[{{"system_id":"s_2"}},{{"system_id":"s_1","contacted_at":"{time}"}}]"#))
                }
                Reply::Log(text) => (200, text.to_owned()),
                Reply::Job(id, status) => (201, job(id, status)),
                Reply::Status(status) => (status, "{}".to_owned()),
                Reply::Failed(error) => return Err(error),
                Reply::Never => pending().await,
            };
            let status = StatusCode::from_u16(status).unwrap();
            Ok(Answer { status, next_page: None, has_total: false, body: body.into_bytes() })
        }
        .boxed()
    }
}

/// The receipt of a manager with the runner 7, the changes that were requested of GitLab, and the time that this took. GitLab needs `takes` for
/// each answer, the drain had `deadline` seconds left, and Terraform stops after `stop` seconds.
async fn receipt(
    script: impl Fn(u64, &str) -> Reply + Send + Sync + 'static,
    on_lost_jobs: OnLostJobs,
    (takes, deadline, stop): (f64, u64, Option<u64>),
) -> (Receipt, Vec<String>, u64) {
    let start = Instant::now();
    let fake =
        Arc::new(Fake { start, script, takes: Duration::from_secs_f64(takes), changes: Mutex::default() });
    let instance = Instance::parse("https://gitlab.example").unwrap();
    let connections = Connections::Simulated(fake.clone());
    let gitlab = Gitlab::new(instance, &Secret::new("t"), None, None, &connections).unwrap();
    let registrations = vec![registration("https://gitlab.example", &[7], Some("s_1"), 0)];
    let snapshot = Snapshot::from(v1::Status { registrations, ..v1::Status::default() });
    let token = CancellationToken::new();
    let deadline = start + Duration::from_secs(deadline);
    let stopping = async {
        match stop {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => pending().await,
        }
        token.cancel();
        pending::<()>().await;
    };
    let receipt = tokio::select! {
        receipt = ask("m", &gitlab, &snapshot, on_lost_jobs, deadline, &token) => receipt,
        () = stopping => unreachable!(),
    };
    let changes = fake.changes.lock().clone();
    (receipt, changes, start.elapsed().as_secs())
}

fn ids(receipt: &Receipt) -> Vec<u64> {
    receipt.lost.iter().map(|(job, _)| job.id).collect()
}

fn registration(url: &str, ids: &[u64], system_id: Option<&str>, without_id: u32) -> v1::Registration {
    v1::Registration {
        url: url.to_owned(),
        system_id: system_id.map(str::to_owned),
        runner_ids: ids.to_vec(),
        sections_without_id: without_id,
    }
}

/// GitLab lists job 17 for half a minute. No question after that has an answer.
#[tokio::test(start_paused = true)]
async fn listed_job_is_named_however_the_last_question_fails() {
    let failures = [
        (Reply::Status(502), None),
        (Reply::Status(429), None),
        (Reply::Status(401), None),
        (Reply::Never, None),
        (Reply::Failed(GitlabError::Request("connection reset".to_owned())), None),
        (Reply::Failed(GitlabError::NoConnection("invalid peer certificate".to_owned())), None),
        (Reply::Failed(GitlabError::TooLarge(1)), None),
        (Reply::Log("<html>"), None),
        (Reply::Never, Some(40)),
        (Reply::Jobs(vec![17]), Some(40)),
    ];
    for on_lost_jobs in [OnLostJobs::Warn, OnLostJobs::Retry] {
        for (failure, stop) in failures.clone() {
            let shown = format!("{failure:?} {stop:?} {on_lost_jobs:?}");
            let script = move |second, path: &str| match second {
                _ if path.ends_with("/managers") => Reply::Contact("then"),
                0..30 => Reply::Jobs(vec![17]),
                _ => failure.clone(),
            };
            let (receipt, changes, took) = receipt(script, on_lost_jobs, (0.0, 600, stop)).await;
            assert_eq!((ids(&receipt), receipt.missing.len()), (vec![17], 1), "{shown}: {receipt:?}");
            assert_eq!(changes, [""; 0], "{shown}");
            assert!(took <= stop.unwrap_or(60), "{shown}: {took}");
        }
    }
}

/// GitLab lists a job, and does not list the managers of the runner.
#[tokio::test(start_paused = true)]
async fn listed_job_is_named_without_the_managers() {
    for managers in [Reply::Never, Reply::Status(404)] {
        let shown = format!("{managers:?}");
        let script = move |second, path: &str| match second {
            _ if path.ends_with("/managers") => managers.clone(),
            0..5 => Reply::Jobs(vec![]),
            _ => Reply::Jobs(vec![17]),
        };
        let (receipt, _, took) = receipt(script, OnLostJobs::Retry, (0.0, 0, None)).await;
        assert_eq!((ids(&receipt), receipt.missing.len()), (vec![17], 0), "{shown}: {receipt:?}");
        assert!(took <= 20, "{shown}: {took}");
    }
}

/// GitLab needs 0.9 s for each answer: a pause between two questions does not pass the moment from which on an empty list is final.
#[tokio::test(start_paused = true)]
async fn empty_list_is_final_from_the_moment_on_that_requests_are_handled() {
    let (receipt, _, took) = receipt(|_, _| Reply::Jobs(vec![]), OnLostJobs::Warn, (0.9, 0, None)).await;
    assert!(receipt.is_empty_list(), "{receipt:?}");
    assert_eq!(took, 5);
}

/// It counts for the last answer before.
#[tokio::test(start_paused = true)]
async fn question_that_the_end_cuts_short_does_not_count() {
    let script = |second, _: &str| if second < 50 { Reply::Jobs(vec![17]) } else { Reply::Never };
    let (receipt, _, took) = receipt(script, OnLostJobs::Warn, (0.0, 53, None)).await;
    assert_eq!((ids(&receipt), receipt.missing.len(), took), (vec![17], 0, 53), "{receipt:?}");
}

/// GitLab needs 4 s for the first answer, and has then handled a request that the runner had cancelled. The drain has used up its time, as with
/// `on_timeout = "force"`.
#[tokio::test(start_paused = true)]
async fn list_before_the_last_requests_are_handled_is_not_final() {
    for takes in [1.0, 4.0, 7.0, 9.7] {
        let script = |second, _: &str| Reply::Jobs(if second < 5 { vec![] } else { vec![17] });
        let (receipt, _, took) = receipt(script, OnLostJobs::Warn, (takes, 0, None)).await;
        let is_named = ids(&receipt) == [17];
        assert!(is_named || receipt.missing.len() == 1, "{takes}: {receipt:?}");
        assert!(took <= 10, "{took}");
        if let Some(NoReceipt::Failed { error, .. }) = receipt.missing.first() {
            assert!(matches!(error, GitlabError::Timeout(time) if time.as_secs() >= 5), "{takes}: {error}");
        }
    }
}

/// A drain with `timeouts.delete = "5s"` ends soon after that, also with a lost job.
#[tokio::test(start_paused = true)]
async fn receipt_ends_with_the_time_of_the_drain() {
    for (on_lost_jobs, deadline, end) in [
        (OnLostJobs::Warn, 3, 10),
        (OnLostJobs::Warn, 30, 30),
        (OnLostJobs::Warn, 3600, 60),
        (OnLostJobs::Retry, 3, 20),
    ] {
        let script = |_, path: &str| {
            if path.ends_with("/managers") { Reply::Contact("then") } else { Reply::Jobs(vec![17]) }
        };
        let (_, _, took) = receipt(script, on_lost_jobs, (0.0, deadline, None)).await;
        assert!((end - 5..=end).contains(&took), "{on_lost_jobs:?} {deadline}: {took}");
    }
}

#[test]
fn token_is_for_the_configured_instance_only() {
    let instance = Instance::parse("https://gitlab.example/sub/").unwrap();
    let gitlab = Gitlab::new(instance, &Secret::new("t"), None, None, &Connections::Https).unwrap();
    let of = |registrations: &[v1::Registration]| {
        let status = v1::Status { registrations: registrations.to_vec(), ..v1::Status::default() };
        let (questions, missing) = questions(&gitlab, &Snapshot::from(status));
        (questions, format!("{missing:?}"))
    };
    let here = registration("https://GitLab.example:443", &[7, 8], Some("s_1"), 0);
    let both = [(7, "s_1".to_owned()), (8, "s_1".to_owned())];
    assert_eq!(of(std::slice::from_ref(&here)), (both.to_vec(), "[]".to_owned()));
    for (other, why) in [
        (registration("https://evil.example", &[9], Some("s_1"), 0), "[OtherInstance"),
        (registration("http://gitlab.example", &[9], Some("s_1"), 0), "[OtherInstance"),
        (registration("https://gitlab.example:8443", &[9], Some("s_1"), 0), "[OtherInstance"),
        (registration("https://gitlab.example", &[9], None, 0), "[NoSystemId"),
        (registration("https://gitlab.example", &[], Some("s_1"), 2), "[NoId { sections: 2 }"),
        (registration("https://gitlab.example", &[7], Some("s_1"), 0), "[]"),
    ] {
        let (questions, missing) = of(&[here.clone(), other]);
        assert_eq!(questions, both, "the others are asked");
        assert!(missing.starts_with(why), "{missing}");
    }
    assert_eq!(of(&[]), (Vec::new(), "[NotRegistered]".to_owned()));
    let many: Vec<_> = (0..=50).collect();
    let too_many = registration("https://gitlab.example", &many, Some("s_1"), 0);
    assert_eq!(of(&[too_many]), (Vec::new(), "[TooManyIds { ids: 51 }]".to_owned()));
    let upstream = Snapshot { detail: None, ..Snapshot::from(v1::Status::default()) };
    assert!(matches!(questions(&gitlab, &upstream).1[..], [NoReceipt::Upstream]));
}

/// A job that the first receipt has changed is not listed by the second, or it is named as the first one has left it.
#[test]
fn receipt_that_has_changed_a_job_counts() {
    let job = |id: u64| serde_json::from_value::<Job>(serde_json::json!({ "id": id })).unwrap();
    let of = |lost: Vec<(u64, Fate)>| Receipt {
        lost: lost.into_iter().map(|(id, fate)| (job(id), fate)).collect(),
        missing: Vec::new(),
    };
    let mut later = of(vec![
        (1, Fate::Retried("next".to_owned())),
        (2, Fate::NotCancelled(NotCancelled::New)),
        (4, Fate::Kept),
    ]);
    later.add_earlier(of(vec![
        (1, Fate::NotCancelled(NotCancelled::InContact)),
        (2, Fate::Retried("next".to_owned())),
        (3, Fate::NotCancelled(NotCancelled::HasLog)),
    ]));
    let fates: Vec<_> = later.lost.iter().map(|(job, fate)| (job.id, fate)).collect();
    assert!(
        matches!(
            fates[..],
            [(2, Fate::Retried(_)), (3, Fate::NotCancelled(_)), (1, Fate::Retried(_)), (4, Fate::Kept)]
        ),
        "{fates:?}"
    );
}
