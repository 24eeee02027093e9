//! `on_lost_jobs = "retry"`.

use super::*;

/// GitLab lists job 17 without a log, and accepts each request, except where `script` has a reply.
fn lists(
    jobs: Vec<u64>,
    script: impl Fn(u64, &str) -> Option<Reply> + Send + Sync + 'static,
) -> impl Fn(u64, &str) -> Reply + Send + Sync + 'static {
    move |second, path| {
        script(second, path).unwrap_or_else(|| match path.rsplit('/').next().unwrap() {
            "jobs" => Reply::Jobs(jobs.clone()),
            "managers" => Reply::Contact("then"),
            "trace" => Reply::Log(""),
            "cancel" => Reply::Job(17, "canceling"),
            "retry" => Reply::Job(18, "pending"),
            _ => Reply::Status(404),
        })
    }
}

const CANCEL: &str = "/projects/5/jobs/17/cancel";
const RETRY: &str = "/projects/5/jobs/17/retry";

/// GitLab replies so to requests with this end of the path, from this second on.
type Case = (&'static str, u64, Reply);

#[tokio::test(start_paused = true)]
async fn lost_job_is_queued_again_unless_a_runner_may_have_it() {
    let cases: [(Option<Case>, &str, &[&str]); 14] = [
        (None, "Retried(\"u18\")", &[CANCEL, RETRY]),
        (Some(("/cancel", 0, Reply::Job(17, "canceled"))), "Retried(\"u18\")", &[CANCEL, RETRY]),
        // GitLab cancels no job that has ended, and accepts the request.
        (Some(("/cancel", 0, Reply::Job(17, "success"))), "NotCancelled(Ended(\"success\"))", &[CANCEL]),
        (Some(("/cancel", 0, Reply::Job(17, "failed"))), "NotCancelled(Ended(\"failed\"))", &[CANCEL]),
        (Some(("/cancel", 0, Reply::Status(403))), "NotCancelled(Failed(Status(403)))", &[CANCEL]),
        (Some(("/cancel", 0, Reply::Status(502))), "MayBeCancelled(Status(502))", &[CANCEL]),
        (Some(("/cancel", 0, Reply::Never)), "MayBeCancelled(Timeout(15s))", &[CANCEL]),
        (Some(("/retry", 0, Reply::Never)), "NotQueued(Timeout(15s))", &[CANCEL, RETRY]),
        (Some(("/trace", 0, Reply::Log("Running"))), "NotCancelled(HasLog)", &[]),
        (Some(("/trace", 0, Reply::Status(403))), "NotCancelled(Failed(Status(403)))", &[]),
        // The manager lives: the host reports the ids of another one, or another process has the same system id.
        (Some(("/managers", 30, Reply::Contact("now"))), "NotCancelled(InContact)", &[]),
        (Some(("/managers", 0, Reply::Log("[]"))), "NotCancelled(InContact)", &[]),
        (Some(("/managers", 0, Reply::Status(404))), "NotCancelled(NoAnswer)", &[]),
        (Some(("/managers", 30, Reply::Status(404))), "NotCancelled(Failed(Status(404)))", &[]),
    ];
    for (case, fate, changes) in cases {
        let shown = format!("{case:?}");
        let script = move |second, path: &str| {
            let (end, from, reply) = case.as_ref()?;
            (path.ends_with(end) && second >= *from).then(|| reply.clone())
        };
        let (receipt, changed, _) =
            receipt(lists(vec![17], script), OnLostJobs::Retry, (0.0, 600, None)).await;
        assert_eq!(format!("{:?}", receipt.lost[0].1), fate, "{shown}");
        assert_eq!(changed, changes, "{shown}");
    }
}

/// GitLab lists job 2 since a short time: a runner that was started again has received it.
#[tokio::test(start_paused = true)]
async fn job_that_a_runner_may_have_just_received_is_not_cancelled() {
    let script = |second, path: &str| {
        (path.ends_with("/jobs")).then(|| Reply::Jobs(if second < 50 { vec![17] } else { vec![17, 2] }))
    };
    let (receipt, changes, _) = receipt(lists(vec![], script), OnLostJobs::Retry, (0.0, 600, None)).await;
    let fates: Vec<_> = receipt.lost.iter().map(|(job, fate)| (job.id, fate)).collect();
    assert!(
        matches!(fates[..], [(17, Fate::Retried(_)), (2, Fate::NotCancelled(NotCancelled::New))]),
        "{receipt:?}"
    );
    assert_eq!(changes, [CANCEL, RETRY]);
}

/// As after an outage, in which the logs of jobs do not arrive.
#[tokio::test(start_paused = true)]
async fn job_is_not_cancelled_just_after_an_outage() {
    let script = |second, path: &str| {
        (path.ends_with("/jobs") && (10..52).contains(&second)).then_some(Reply::Status(502))
    };
    let (receipt, changes, _) = receipt(lists(vec![17], script), OnLostJobs::Retry, (0.0, 600, None)).await;
    assert!(matches!(receipt.lost[0].1, Fate::NotCancelled(NotCancelled::New)), "{receipt:?}");
    assert_eq!(changes, [""; 0]);
}

/// It refuses a job whose status is still `canceling`, and limits the rate of requests.
#[tokio::test(start_paused = true)]
async fn job_that_gitlab_refuses_for_now_is_queued_later() {
    for (status, cancelled, attempts, is_queued) in [
        (403, "canceling", 3, true),
        (403, "canceling", 100, false),
        (403, "canceled", 3, false),
        (429, "canceled", 3, true),
        (502, "canceling", 3, false),
    ] {
        let count = std::sync::atomic::AtomicU32::new(0);
        let script = move |_, path: &str| match path.rsplit('/').next().unwrap() {
            "cancel" => Some(Reply::Job(17, cancelled)),
            "retry" => {
                let before = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                (before < attempts).then_some(Reply::Status(status))
            }
            _ => None,
        };
        let (receipt, _, took) = receipt(lists(vec![17], script), OnLostJobs::Retry, (0.0, 600, None)).await;
        let fate = &receipt.lost[0].1;
        assert_eq!(matches!(fate, Fate::Retried(_)), is_queued, "{status} {cancelled}: {fate:?}");
        assert!(is_queued || matches!(fate, Fate::NotQueued(_)), "{fate:?}");
        assert!(took <= 70, "{took}");
    }
}

/// Each answer of GitLab takes 14 s, and 60 jobs are lost.
#[tokio::test(start_paused = true)]
async fn retries_end_with_an_interruption_and_at_their_limit() {
    for (stop, limit) in [(Some(80), 80), (Some(95), 105), (None, 120)] {
        let script = lists((1..=60).collect(), |_, _| None);
        let (receipt, changes, took) = receipt(script, OnLostJobs::Retry, (14.0, 600, stop)).await;
        assert_eq!(ids(&receipt).len(), 60);
        assert!(took <= limit, "{stop:?}: {took}");
        let (mut changed, mut others) = (0, 0);
        for (_, fate) in &receipt.lost {
            match fate {
                fate if fate.is_change() => changed += 1,
                Fate::NotCancelled(NotCancelled::NoTime) if stop.is_none() => others += 1,
                Fate::NotCancelled(NotCancelled::Interrupted) if stop.is_some() => others += 1,
                fate => panic!("{stop:?}: {fate:?}"),
            }
        }
        let cancelled = changes.iter().filter(|path| path.ends_with("/cancel")).count();
        assert!(changed == cancelled && changed + others == 60, "{changed} {others} {changes:?}");
    }
}

/// Terraform stops while GitLab does not answer to the retry: the job is cancelled, and not queued again.
#[tokio::test(start_paused = true)]
async fn job_of_an_interrupted_pair_is_named() {
    for (end, fate) in [("/cancel", "MayBeCancelled"), ("/retry", "NotQueued")] {
        let script = move |_, path: &str| path.ends_with(end).then_some(Reply::Never);
        let (receipt, _, took) =
            receipt(lists(vec![17, 16], script), OnLostJobs::Retry, (0.0, 600, Some(61))).await;
        let fates: Vec<_> = receipt.lost.iter().map(|(_, fate)| format!("{fate:?}")).collect();
        assert!(fates[0].starts_with(fate) && fates[1] == "NotCancelled(Interrupted)", "{fates:?}");
        assert!((66..=71).contains(&took), "{took}");
    }
}
