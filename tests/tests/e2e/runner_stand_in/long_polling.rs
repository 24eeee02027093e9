//! The stand-in for GitLab holds and answers job requests as Workhorse and Rails do.

use std::time::Duration;

use grit_tests::lab::{
    Lab,
    http::{self, Reply},
    queue::{LongPolling, Tally},
};
use serde_json::json;

use super::process::{LIMIT, Runner};

const HOUR: Duration = Duration::from_secs(3600);
const LAST_UPDATE: &str = "x-gitlab-last-update";

/// A lab with this setting whose GitLab has no latency.
pub(super) fn lab(long_polling: LongPolling) -> Lab {
    let lab = Lab::start().unwrap();
    lab.queue().set_long_polling(long_polling);
    lab.queue().set_latency(Duration::ZERO..=Duration::ZERO);
    lab
}

/// A job request of the runner `t` on the host `a`, which are not there.
pub(super) async fn ask(lab: &Lab, last_update: Option<u64>) -> Reply {
    let request = json!({
        "info": { "name": "gitlab-runner", "version": "19.2.0", "features": { "two_phase_job_commit": false } },
        "token": "t", "system_id": "a", "pid": 1, "last_update": last_update,
    });
    http::send("POST", &format!("{}/api/v4/jobs/request", lab.queue().url()), Some(&request)).await.unwrap()
}

/// The status of a response, and its `last_update`.
fn read(reply: &Reply) -> (u16, Option<u64>) {
    let last_update = reply.headers.get(LAST_UPDATE).map(|value| value.to_str().unwrap().parse().unwrap());
    (reply.status.as_u16(), last_update)
}

/// The `last_update` after a first request, which is never held.
async fn newest(lab: &Lab) -> Option<u64> {
    let (status, last_update) = read(&ask(lab, None).await);
    assert_eq!((status, last_update.is_some()), (204, true));
    last_update
}

#[tokio::test]
async fn held_request_ends_at_a_change_without_job() {
    for (long_polling, wanted) in [(LongPolling::Held(HOUR), 204), (LongPolling::AssignsLate(HOUR), 201)] {
        let lab = lab(long_polling);
        let newest = newest(&lab).await;
        let (held, ()) = tokio::join!(ask(&lab, newest), async {
            while lab.queue().held_requests() == 0 {
                tokio::task::yield_now().await;
            }
            lab.queue().submit(1, Duration::ZERO);
        });
        assert_eq!((read(&held), lab.queue().held_requests()), ((wanted, None), 0));
        if wanted == 204 {
            assert_eq!(lab.queue().tally(), Tally { queued: 1, ..Tally::default() });
            // It was told no new value, so its next request is not held.
            assert_eq!(read(&ask(&lab, newest).await), (201, None));
        }
        assert_eq!(lab.queue().tally(), Tally { assigned: 1, ..Tally::default() });
    }
}

#[tokio::test]
async fn held_request_ends_after_hold_time() {
    let lab = lab(LongPolling::Held(Duration::from_millis(50)));
    let newest = newest(&lab).await;
    let begin = std::time::Instant::now();
    assert_eq!(read(&ask(&lab, newest).await), (204, None));
    assert!(begin.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn requests_are_not_held_without_long_polling() {
    let lab = lab(LongPolling::Off);
    let newest = newest(&lab).await;
    assert_eq!(read(&ask(&lab, newest).await), (204, newest));
}

#[test]
fn paused_runner_is_held_and_gets_jobs_after_resumption() {
    let lab = Lab::start().unwrap();
    lab.queue().pause_token("t");
    let _runner = Runner::start(&lab, "a", &["t"], &[]);
    lab.queue().submit(1, Duration::ZERO);
    grit_tests::poll::until("its request is held", LIMIT, || match lab.queue().held_requests() {
        1 => Ok(()),
        count => Err(count),
    });
    assert_eq!(lab.queue().tally().queued, 1);
    lab.queue().resume_token("t");
    assert_eq!(lab.queue().wait_all_ended(LIMIT).unwrap().finished, 1);
}
