//! The stand-in for GitLab lists, cancels and retries jobs as GitLab's API does.

use std::{collections::BTreeSet, time::Duration};

use grit_tests::{
    lab::{
        Lab,
        event::What,
        http::{self, Reply},
        queue::{Access, LongPolling, Tally},
    },
    poll,
};
use rustix::process::Signal;
use serde_json::Value;

use super::{
    long_polling::{ask, lab},
    process::{LIMIT, Runner},
};

/// Calls the API with this token. `path` is a path below `/api/v4`, or a URL.
async fn call(lab: &Lab, token: &str, method: &str, path: &str) -> Reply {
    let url = if path.starts_with("http") {
        path.to_owned()
    } else {
        format!("{}/api/v4{path}", lab.queue().url())
    };
    http::send_with(&[("PRIVATE-TOKEN", token)], method, &url, None::<&()>).await.unwrap()
}

/// The ids of the jobs in a response.
fn ids(reply: &Reply) -> Vec<u64> {
    let jobs: Vec<Value> = reply.json().unwrap();
    jobs.iter().map(|job| job["id"].as_u64().unwrap()).collect()
}

fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// The URL of the next page.
fn next_link(reply: &Reply) -> Option<String> {
    let links = header(reply, "link").split(", ").map(str::to_owned);
    let next = links.into_iter().find(|link| link.ends_with("; rel=\"next\""))?;
    Some(next.split(['<', '>']).nth(1).unwrap().to_owned())
}

/// A job that is lost at the drain of its runner `t` on the host `a`.
fn lose_a_job(lab: &Lab) {
    let hour = Duration::from_secs(3600);
    lab.queue().set_latency(hour..=hour);
    lab.queue().submit(1, Duration::ZERO);
    let mut runner = Runner::start(lab, "a", &["t"], &[]);
    poll::until("the job is assigned", LIMIT, || match lab.queue().tally() {
        tally if tally.assigned == 1 => Ok(()),
        tally => Err(tally),
    });
    runner.signal(Signal::QUIT);
    assert_eq!(runner.wait().code(), Some(0));
    poll::until("the job is lost", LIMIT, || match lab.queue().lost().len() {
        1 => Ok(()),
        count => Err(count),
    });
    lab.queue().set_latency(Duration::ZERO..=Duration::ZERO);
}

#[tokio::test]
async fn lost_job_is_listed_as_running_on_its_manager() {
    let lab = Lab::start().unwrap();
    lose_a_job(&lab);
    lab.queue().add_api_token("owner", Access::Reporter);
    lab.queue().add_api_token("stranger", Access::None);
    let id = lab.queue().runner_id("t");
    let path = format!("/runners/{id}/jobs?status=running&system_id=a");
    let listed = call(&lab, "owner", "GET", &path).await;
    let jobs: Value = listed.json().unwrap();
    let url = lab.queue().url();
    assert_eq!(jobs[0]["web_url"], format!("{url}/group/project/-/jobs/1"), "{jobs}");
    assert_eq!((&jobs[0]["id"], &jobs[0]["status"]), (&1.into(), &"running".into()), "{jobs}");
    assert!(jobs[0]["project"]["id"].is_u64() && jobs.as_array().unwrap().len() == 1, "{jobs}");

    let other = lab.queue().runner_id("u");
    for (path, wanted) in [
        (format!("/runners/{id}/jobs?status=running&system_id=b"), vec![]),
        (format!("/runners/{id}/jobs?status=success&system_id=a"), vec![]),
        (format!("/runners/{other}/jobs?status=running&system_id=a"), vec![]),
        (format!("/runners/{id}/jobs"), vec![1]),
    ] {
        assert_eq!(ids(&call(&lab, "owner", "GET", &path).await), wanted, "{path}");
    }
    let invalid = format!("/runners/{id}/jobs?status=lost");
    for (token, method, path, status) in [
        ("", "GET", path.as_str(), 401),
        ("unknown", "GET", path.as_str(), 401),
        ("stranger", "GET", path.as_str(), 403),
        ("owner", "GET", "/runners/1/jobs", 404),
        ("owner", "GET", invalid.as_str(), 400),
        ("owner", "POST", "/projects/7/jobs/1/cancel", 403),
    ] {
        let reply = call(&lab, token, method, path).await;
        assert_eq!(reply.status.as_u16(), status, "{token} {path}: {}", reply.text());
    }
}

#[tokio::test]
async fn pages_have_all_jobs_and_no_total() {
    let lab = lab(LongPolling::Off);
    lab.queue().add_api_token("owner", Access::Reporter);
    lab.queue().submit(45, Duration::ZERO);
    for _ in 0..45 {
        assert_eq!(ask(&lab, None).await.status.as_u16(), 201);
    }
    let path = format!("/runners/{}/jobs?status=running&system_id=a", lab.queue().runner_id("t"));

    let mut by_number = Vec::new();
    let mut page = "1".to_owned();
    while !page.is_empty() {
        let reply = call(&lab, "owner", "GET", &format!("{path}&page={page}&per_page=20")).await;
        by_number.push(ids(&reply));
        assert!(reply.headers.get("x-total").is_none());
        assert_eq!(next_link(&reply).is_some(), !header(&reply, "x-next-page").is_empty());
        page = header(&reply, "x-next-page").to_owned();
    }
    assert_eq!(by_number.iter().map(Vec::len).collect::<Vec<_>>(), [20, 20, 5]);

    for (order, first) in [("&order_by=id&sort=asc", 1), ("&order_by=id", 45)] {
        for kind in ["", "&pagination=keyset"] {
            let mut by_link = Vec::new();
            let mut next = Some(format!("{path}{order}{kind}&per_page=20"));
            while let Some(path) = next {
                let reply = call(&lab, "owner", "GET", &path).await;
                by_link.extend(ids(&reply));
                next = next_link(&reply);
                assert_eq!(reply.headers.get("x-next-page").is_some(), kind.is_empty());
            }
            assert_eq!((by_link[0], by_link.len()), (first, 45), "{order} {kind}");
            assert_eq!(BTreeSet::from_iter(by_link), BTreeSet::from_iter(1..=45), "{order} {kind}");
        }
    }
}

#[tokio::test]
async fn lost_job_is_canceled_and_retried_once() {
    let lab = Lab::start().unwrap();
    lose_a_job(&lab);
    lab.queue().add_api_token("developer", Access::Developer);
    let change = async |project: u64, job: u64, change: &str| {
        let reply =
            call(&lab, "developer", "POST", &format!("/projects/{project}/jobs/{job}/{change}")).await;
        let job: Value = reply.json().unwrap();
        (reply.status.as_u16(), job["id"].as_u64(), job["status"].as_str().map(str::to_owned))
    };
    let refused = |status| (status, None, None);
    assert_eq!(change(1, 1, "cancel").await, refused(404));
    assert_eq!(change(7, 2, "cancel").await, refused(404));
    assert_eq!(change(7, 1, "retry").await, refused(403), "GitLab shows it as running");
    let canceling = (201, Some(1), Some("canceling".to_owned()));
    assert_eq!(change(7, 1, "cancel").await, canceling, "GitLab waits for the runner");
    assert_eq!(change(7, 1, "cancel").await, canceling);
    assert_eq!(change(7, 1, "retry").await, (201, Some(2), Some("pending".to_owned())));
    assert_eq!(change(7, 1, "retry").await, refused(403));
    assert_eq!(lab.queue().lost().into_iter().map(|job| job.retried_as).collect::<Vec<_>>(), [Some(2)]);

    let _runner = Runner::start(&lab, "b", &["t"], &[]);
    assert_eq!(
        lab.queue().wait_all_ended(LIMIT).unwrap(),
        Tally { finished: 1, lost: 1, ..Tally::default() }
    );
    let ended = lab.events().find(|event| event.what == What::JobFinished { job: 2 }).unwrap();
    assert_eq!(ended.subject, "b");

    assert_eq!(change(7, 2, "cancel").await, (201, Some(2), Some("success".to_owned())), "it has ended");

    // A job of a live runner is lost when it is canceled.
    lab.queue().submit_held(1);
    lab.queue().wait_until_none_waits(LIMIT);
    assert_eq!(change(7, 3, "cancel").await, (201, Some(3), Some("canceled".to_owned())));
    assert_eq!((lab.queue().tally().lost, lab.queue().lost().len()), (2, 1));
}

/// The manager of a job, jobs of a project that the user cannot see, and a limited rate of requests.
#[tokio::test]
async fn managers_hidden_jobs_and_rate_limit_are_as_in_gitlab() {
    let lab = Lab::start().unwrap();
    lose_a_job(&lab);
    lab.queue().add_api_token("owner", Access::Developer);
    let id = lab.queue().runner_id("t");
    let managers = async || call(&lab, "owner", "GET", &format!("/runners/{id}/managers")).await;
    let before: Value = managers().await.json().unwrap();
    assert_eq!(before[0]["system_id"], "a", "{before}");
    assert_eq!(managers().await.json::<Value>().unwrap(), before, "the runner is gone");
    ask(&lab, None).await;
    assert_ne!(managers().await.json::<Value>().unwrap(), before, "a request of the same manager");

    lab.queue().limit_api(Some(1));
    assert_eq!(managers().await.status.as_u16(), 200);
    let limited = managers().await;
    lab.queue().limit_api(None);
    assert_eq!((limited.status.as_u16(), header(&limited, "retry-after")), (429, "1"));
    let path = format!("/runners/{id}/jobs?status=running&system_id=a");
    assert_eq!(ids(&call(&lab, "owner", "GET", &path).await), [1]);
    lab.queue().hide(&[1]);
    assert_eq!(ids(&call(&lab, "owner", "GET", &path).await), [0_u64; 0]);
    for (method, end) in [("GET", "trace"), ("POST", "cancel"), ("POST", "retry")] {
        let reply = call(&lab, "owner", method, &format!("/projects/7/jobs/1/{end}")).await;
        assert_eq!(reply.status.as_u16(), 404, "{end}");
    }
}
