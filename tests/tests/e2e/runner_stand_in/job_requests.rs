//! When the stand-in requests jobs, and what becomes of a job in a response that it never reads.

use std::time::Duration;

use grit_tests::{
    lab::{
        Lab,
        event::What,
        queue::{LongPolling, Tally},
    },
    poll,
};
use rustix::process::Signal;

use super::process::{LIMIT, Runner, configuration, jobs_running, place};

const GAUGE: &str = "gitlab_runner_request_concurrency";
const HOUR: Duration = Duration::from_secs(3600);

/// A lab whose GitLab assigns jobs immediately, and responds an hour later.
fn slow_lab(jobs: usize) -> Lab {
    let lab = Lab::start().unwrap();
    lab.queue().set_latency(HOUR..=HOUR);
    lab.queue().submit(jobs, Duration::ZERO);
    lab
}

fn jobs_assigned(lab: &Lab, count: usize) {
    poll::until("jobs are assigned", LIMIT, || match lab.queue().tally() {
        tally if tally.assigned == count => Ok(()),
        tally => Err(tally),
    });
}

/// The configuration of one section with these settings.
fn settings(lab: &Lab, concurrent: usize, request_concurrency: usize, check_interval: &str) -> String {
    let text = configuration(lab, &["t"])
        .replace("concurrent = 4", &format!("concurrent = {concurrent}"))
        .replace("check_interval = 0.1", &format!("check_interval = {check_interval}"));
    format!("{text}  request_concurrency = {request_concurrency}\n")
}

/// A stop signal cancels the request while the response with the job is on its way.
#[test]
fn job_assigned_at_stop_signal_is_lost() {
    // With and without the two-phase job commit, which runners of 18.5 and newer can do.
    let cases = [("19.2", false, 1), ("18.5", true, 0), ("18.4", true, 1)];
    for (version, two_phase_commit, lost) in cases {
        for signal in [Signal::QUIT, Signal::TERM] {
            let lab = slow_lab(1);
            lab.queue().set_two_phase_commit(two_phase_commit);
            let mut runner = Runner::start(&lab, "a", &["t"], &["--emulate-version", version]);
            jobs_assigned(&lab, 1);
            runner.signal(signal);
            assert_eq!(runner.wait().code(), Some(0), "{version}");
            poll::until("the job is lost, or back in the queue", LIMIT, || match lab.queue().tally() {
                tally if tally == (Tally { lost, queued: 1 - lost, ..Tally::default() }) => Ok(()),
                tally => Err((version, tally)),
            });
            let found: Vec<_> = lab
                .queue()
                .lost()
                .into_iter()
                .map(|job| (job.id, job.on.system_id, job.was_running))
                .collect();
            assert_eq!(found, vec![(1, "a".to_owned(), false); lost], "{version}");
            assert_eq!(lab.queue().runner("a").lost, lost);
            let log = std::fs::read_to_string(runner.config.with_file_name("stderr")).unwrap();
            assert!(log.contains("Checking for jobs... failed") && log.contains("context canceled"), "{log}");
        }
    }
}

#[test]
fn request_gauge_is_1_from_request_to_first_report() {
    let lab = slow_lab(1);
    let runner = Runner::start(&lab, "slow", &["t"], &[]);
    jobs_assigned(&lab, 1);
    assert_eq!(runner.metric(GAUGE), Some(1), "it rises before the request is sent");

    let lab = Lab::start().unwrap();
    let text = settings(&lab, 1, 1, "0.1");
    let runner = Runner::configured(&lab, "fast", Some(&text), &[]);
    lab.queue().submit_held(1);
    jobs_running(&lab, 1);
    runner.wait_metric(GAUGE, 0);
}

#[test]
fn open_requests_are_limited_by_workers_and_setting() {
    for (concurrent, request_concurrency, wanted) in [(4, 4, 4), (4, 2, 2), (2, 4, 2)] {
        let lab = slow_lab(8);
        let text = settings(&lab, concurrent, request_concurrency, "0.01");
        let runner = Runner::configured(&lab, "a", Some(&text), &[]);
        jobs_assigned(&lab, wanted);
        runner.wait_metric(GAUGE, wanted as u64);
        runner.wait_metric("gitlab_runner_request_concurrency_hard_limit", request_concurrency as u64);
        if request_concurrency < concurrent {
            poll::until("further turns without a request", LIMIT, || {
                let exceeded = runner.metric("gitlab_runner_request_concurrency_exceeded_total");
                if exceeded > Some(10) { Ok(()) } else { Err(exceeded) }
            });
        }
        assert_eq!((lab.queue().tally().assigned, runner.metric(GAUGE)), (wanted, Some(wanted as u64)));
    }
}

#[test]
fn busy_workers_request_no_jobs() {
    let lab = Lab::start().unwrap();
    lab.queue().set_long_polling(LongPolling::Off);
    let text = settings(&lab, 1, 1, "0.01");
    let runner = Runner::configured(&lab, "a", Some(&text), &[]);
    let held = lab.queue().submit_held(1);
    jobs_running(&lab, 1);
    runner.wait_metric(GAUGE, 0);
    let polls = lab.queue().runner("a").polls;
    lab.queue().submit(1, Duration::ZERO);
    // A runner that requested jobs would have sent many requests before its endpoint answers this often.
    for _ in 0..50 {
        assert_eq!(runner.metric(GAUGE), Some(0));
    }
    assert_eq!(lab.queue().runner("a").polls, polls);
    lab.queue().release(&held);
    assert_eq!(lab.queue().wait_all_ended(LIMIT).unwrap().finished, 2);
    let first = place(&lab, "the end of the first", |event| event.what == What::JobFinished { job: 1 });
    let second = place(&lab, "the start of the second", |event| event.what == What::JobStarted { job: 2 });
    assert!(first < second, "{}", lab.events());
}

#[test]
fn received_job_is_followed_immediately_by_next_request() {
    let lab = Lab::start().unwrap();
    lab.queue().submit_held(4);
    // The turn of the second section would come after half an hour.
    let text = settings(&lab, 4, 1, "3600") + "[[runners]]\n  name = \"u\"\n  token = \"u\"\n";
    let runner = Runner::configured(&lab, "a", Some(&text), &[]);
    jobs_running(&lab, 4);
    let (_, metrics) = runner.get("/metrics").unwrap();
    let feeds = metrics.lines().filter(|line| line.starts_with("gitlab_runner_worker_feeds_total"));
    let feeds: Vec<_> = feeds.map(|line| (line.contains("runner=\"t\""), line.ends_with(" 1"))).collect();
    assert_eq!(feeds, [(true, true)], "{metrics}");
}

#[test]
fn sections_are_fed_in_turn() {
    let lab = Lab::start().unwrap();
    let runner = Runner::start(&lab, "a", &["t", "u", "v"], &[]);
    let feeds = || {
        let (_, metrics) = runner.get("/metrics").unwrap_or_default();
        let lines = metrics.lines().filter(|line| line.starts_with("gitlab_runner_worker_feeds_total"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    poll::until("each section has had many turns", LIMIT, || {
        let feeds = feeds();
        // In the order of the configuration.
        let is_in_turn = feeds.is_sorted_by(|one, next| one >= next);
        let is_same =
            feeds.iter().max().zip(feeds.iter().min()).is_some_and(|(most, least)| most - least <= 1);
        assert!(is_in_turn && (feeds.len() < 3 || is_same), "{feeds:?}");
        if feeds.len() == 3 && feeds[2] > 10 { Ok(()) } else { Err(feeds) }
    });
}
