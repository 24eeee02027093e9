//! The load tests would notice a drain that loses jobs at its start: the same hosts lose jobs if their wrappers do not wait for a gap. Then the
//! outcome is not clean.

use std::{process::Command, time::Duration};

use grit_tests::{
    lab::{
        Lab,
        event::{Event, What},
        host::Host,
        queue::LongPolling,
    },
    rollout::{PATIENCE, is_signal},
    terraform::built,
};
use serde::{Deserialize, Serialize};

use crate::pictures;

/// About a third of the drains loses a job, so that 80 drains without a loss have a probability below 1e-12.
const ROUNDS: usize = 10;
const HOSTS: usize = 8;

#[test]
fn drains_under_load_lose_jobs_without_the_gap_and_report_them() {
    let lab = Lab::start().unwrap();
    lab.queue().set_long_polling(LongPolling::Off);
    lab.cloud().shape(|_, spec| {
        *spec = std::mem::take(spec).under_load().wrapper(&["--start-grace=0s", "--request-gap-timeout=0s"]);
    });
    let hosts: Vec<_> =
        (1..=HOSTS).map(|number| lab.cloud().create(&format!("m{number}"), "19.2.0").unwrap().1).collect();
    let _load = lab.queue().load(8 * HOSTS, Duration::from_millis(500));
    let mut from = 0;
    for _ in 0..ROUNDS {
        for host in &hosts {
            let polls = lab.events().wait_from(from, PATIENCE, |event| {
                event.subject == host.instance_name() && matches!(event.what, What::RunnerPolling { .. })
            });
            assert!(polls.is_some(), "{} does not poll", host.instance_name());
        }
        from = lab.events().note("test", "drain").seq;
        let drains: Vec<_> =
            hosts.iter().map(|host| (host, operator(host, "drain").arg("--wait").spawn().unwrap())).collect();
        let clean: Vec<_> = drains
            .into_iter()
            .filter_map(|(host, mut drain)| drain.wait().unwrap().success().then(|| host.instance_name()))
            .collect();
        let lost = lab.queue().lost();
        for job in &lost {
            assert!(!clean.contains(&job.on.system_id.as_str()), "{job:?} was lost in a clean drain");
        }
        if !lost.is_empty() {
            return;
        }
        for host in &hosts {
            assert!(operator(host, "start").status().unwrap().success());
        }
    }
    panic!("no job was lost");
}

fn operator(host: &Host, command: &str) -> Command {
    let mut operator = Command::new(built("grit-wrapper").unwrap());
    operator.args([command, "--address", &host.wrapper_address()]).stdout(std::process::Stdio::null());
    operator
}

/// The data of `docs/pictures/drain-start.svg`. Times are seconds since the request of the drain.
#[derive(Debug, Serialize, Deserialize)]
struct Picture {
    milestones: Vec<Milestone>,
    requests: Vec<Request>,
    jobs: Vec<Job>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Milestone {
    at: f64,
    what: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    section: u32,
    from: f64,
    to: f64,
    job: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    job: u64,
    from: f64,
    to: f64,
}

/// A drain is requested while a job request is open to which GitLab has assigned a job. The runner has two sections, and another job runs.
#[test]
fn picture_of_drain_start_has_order_of_a_run() {
    let lab = Lab::start().unwrap();
    let (queue, events) = (lab.queue(), lab.events());
    queue.set_long_polling(LongPolling::Off);
    let latency = Duration::from_millis(300);
    queue.set_latency(latency..=latency);
    lab.cloud().shape(|_, spec| {
        *spec = std::mem::take(spec).under_load().wrapper(&["--start-grace=0s"]);
        spec.tokens = Some(vec!["section-1".to_owned(), "section-2".to_owned()]);
    });
    let (_, host) = lab.cloud().create("blue-v1", "19.2.0").unwrap();
    let held = queue.submit_held(1);
    queue.wait_until_none_waits(PATIENCE);
    queue.record_requests();
    // Both sections have had a turn.
    std::thread::sleep(Duration::from_secs(3));
    let [job] = queue.submit_held(1)[..] else { panic!("one job") };
    events.wait_for(
        "a request with the job",
        PATIENCE,
        |event| matches!(event.what, What::JobRequestOpened { job: Some(assigned), .. } if assigned == job),
    );
    std::thread::sleep(Duration::from_millis(100));
    let requested = events.note("test", "drain requested");
    let mut drain = operator(&host, "drain").arg("--wait").spawn().unwrap();
    events.wait_for("SIGQUIT", PATIENCE, |event| is_signal(event, "SIGQUIT"));
    std::thread::sleep(Duration::from_millis(700));
    queue.release(&[job]);
    events.wait_for("the job ends", PATIENCE, |event| event.what == What::JobFinished { job });
    std::thread::sleep(Duration::from_millis(500));
    queue.release(&held);
    assert!(drain.wait().unwrap().success());
    assert_eq!(queue.lost(), []);

    let run = picture(&events.all(), &requested);
    let recorded: Picture = pictures::recorded("drain-start.json", &run);
    let order = |picture: &Picture| -> Vec<_> {
        picture.milestones.iter().map(|milestone| milestone.what.clone()).collect()
    };
    assert_eq!(order(&run), order(&recorded), "in\n{events}");
}

fn picture(events: &[Event], requested: &Event) -> Picture {
    let time = |event: &Event| pictures::seconds(requested, event);
    let quit = events.iter().find(|event| is_signal(event, "SIGQUIT")).unwrap();
    let (mut milestones, mut requests, mut jobs) =
        (vec![(requested, "drain requested".to_owned())], vec![], vec![]);
    let mut last_closed = None;
    for event in events {
        match &event.what {
            What::JobRequestOpened { request, token, job } => {
                let is_end = |end: &&Event| matches!(end.what, What::JobRequestClosed { request: of, .. } if of == *request);
                let end = events.iter().find(is_end).unwrap();
                assert_eq!(end.what, What::JobRequestClosed { request: *request, cancelled: false });
                assert!(end.seq < quit.seq, "request {request} was open at SIGQUIT");
                last_closed = last_closed.max(Some(end.seq));
                let section = token.trim_start_matches("section-").parse().unwrap();
                requests.push(Request { section, from: time(event), to: time(end), job: *job });
                if let Some(job) = job {
                    milestones.push((event, format!("GitLab assigns job {job}")));
                }
            }
            What::JobStarted { job } => {
                let is_end = |end: &&Event| end.what == What::JobFinished { job: *job };
                let end = events.iter().find(is_end).unwrap();
                jobs.push(Job { job: *job, from: time(event), to: time(end) });
                if event.seq > requested.seq {
                    milestones.push((event, format!("job {job} starts")));
                }
                milestones.push((end, format!("job {job} finished")));
            }
            What::RunnerExiting { .. } => milestones.push((event, "runner exits".to_owned())),
            _ => {}
        }
    }
    let gap = events.iter().find(|event| Some(event.seq) == last_closed).unwrap();
    milestones.push((gap, "no job request is open".to_owned()));
    milestones.push((quit, "SIGQUIT".to_owned()));
    milestones.sort_by_key(|(event, _)| event.seq);
    let milestones =
        milestones.into_iter().map(|(event, what)| Milestone { at: time(event), what }).collect();
    Picture { milestones, requests, jobs }
}
