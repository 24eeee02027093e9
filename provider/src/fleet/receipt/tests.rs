use std::{future::ready, sync::Arc};

use super::*;
use crate::gitlab::{Answer, Connections, Instance, SimulatedGitlab};
use futures::{FutureExt as _, future::BoxFuture};
use grit_proto::wrapper_v1 as v1;
use grit_ssh::Secret;
use http::{HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

fn registration(url: &str, ids: &[u64], system_id: Option<&str>, without_id: u32) -> v1::Registration {
    v1::Registration {
        url: url.to_owned(),
        system_id: system_id.map(str::to_owned),
        runner_ids: ids.to_vec(),
        sections_without_id: without_id,
    }
}

/// GitLab lists a job, and does not respond to the next question before the end.
#[tokio::test]
async fn job_is_named_if_the_end_cuts_the_last_question_short() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let instance = Instance::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let gitlab = Gitlab::new(instance, &Secret::new("t"), None, &Connections::Https).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let job = r#"[{"id":17,"status":"running","web_url":"https://g/17","project":{"id":5},"name":"x"}]"#;
        let answer = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n{job}", job.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let now = Instant::now();
    let times = Times { handled: now, end: now + FIRST_PAUSE * 3 };
    let (jobs, error) = until_empty("m", &gitlab, &[(7, "s_1".to_owned())], times).await;
    assert!(jobs.len() == 1 && error.is_none(), "{jobs:?} {error:?}");
}

/// GitLab lists job 1, and since some time job 2, which a runner that was started again has received. Neither has a log.
struct Fake {
    start: Instant,
    changed: Mutex<Vec<String>>,
}

impl SimulatedGitlab for Fake {
    fn call(
        &self,
        method: Method,
        url: String,
        _: HeaderValue,
    ) -> BoxFuture<'_, Result<Answer, GitlabError>> {
        let job = |id| format!(r#"{{"id":{id},"status":"running","web_url":"u{id}","project":{{"id":5}}}}"#);
        let listed =
            if self.start.elapsed() < Duration::from_secs(50) { job(1) } else { job(1) + "," + &job(2) };
        let body = match method {
            Method::GET if url.ends_with("/trace") => String::new(),
            Method::GET => format!("[{listed}]"),
            _ => {
                self.changed.lock().push(url);
                job(3)
            }
        };
        let body = body.into_bytes();
        let answer = Answer { status: StatusCode::OK, next_page: None, has_total: false, body };
        ready(Ok(answer)).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn job_that_a_runner_may_have_just_received_is_not_cancelled() {
    let fake = Arc::new(Fake { start: Instant::now(), changed: Mutex::default() });
    let instance = Instance::parse("https://gitlab.example").unwrap();
    let gitlab =
        Gitlab::new(instance, &Secret::new("t"), None, &Connections::Simulated(fake.clone())).unwrap();
    let registrations = vec![registration("https://gitlab.example", &[7], Some("s_1"), 0)];
    let snapshot = Snapshot::from(v1::Status { registrations, ..v1::Status::default() });
    let deadline = Instant::now() + LIMIT * 2;
    let receipt = ask("m", &gitlab, &snapshot, OnLostJobs::Retry, deadline, &CancellationToken::new()).await;
    let fates: Vec<_> = receipt.lost.iter().map(|(job, fate)| (job.id, fate)).collect();
    assert!(matches!(fates[..], [(1, Fate::Retried(_)), (2, Fate::New)]), "{receipt:?}");
    let url = "https://gitlab.example/api/v4/projects/5/jobs/1";
    assert_eq!(*fake.changed.lock(), [format!("{url}/cancel"), format!("{url}/retry")]);
}

#[test]
fn token_is_for_the_configured_instance_only() {
    let instance = Instance::parse("https://gitlab.example/sub/").unwrap();
    let gitlab = Gitlab::new(instance, &Secret::new("t"), None, &Connections::Https).unwrap();
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
    ] {
        let (questions, missing) = of(&[here.clone(), other]);
        assert_eq!(questions, both, "the others are asked");
        assert!(missing.starts_with(why), "{missing}");
    }
    assert_eq!(of(&[]), (Vec::new(), "[NotRegistered]".to_owned()));
    let upstream = Snapshot { detail: None, ..Snapshot::from(v1::Status::default()) };
    assert!(matches!(questions(&gitlab, &upstream).1[..], [NoReceipt::Upstream]));
}
