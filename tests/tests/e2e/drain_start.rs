//! The load tests would notice a drain that loses jobs at its start: the same hosts lose jobs if their wrappers do not wait for a gap. Then the
//! outcome is not clean.

use std::{process::Command, time::Duration};

use grit_tests::{
    lab::{Lab, event::What, host::Host, queue::LongPolling},
    rollout::{PATIENCE, is_signal},
    terraform::built,
};

/// About a third of the drains loses a job, so that 80 drains without a loss have a probability below 1e-12.
const ROUNDS: usize = 10;
const HOSTS: usize = 8;

#[test]
fn drains_under_load_lose_jobs_without_the_gap_and_report_them() {
    let lab = Lab::start().unwrap();
    // At least one job is lost in some round.
    lab.expect_anything();
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

/// A drain is requested while a job request is open to which GitLab has assigned a job. The runner has two sections, and another job runs.
#[test]
fn drain_waits_for_an_open_request_with_a_job() {
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

    let all = events.all();
    let seq = |what: &str, wanted: &dyn Fn(&What) -> bool| {
        let found = all.iter().find(|event| wanted(&event.what));
        found.unwrap_or_else(|| panic!("{what}: no such event in\n{events}")).seq
    };
    let quit = all.iter().find(|event| is_signal(event, "SIGQUIT")).unwrap().seq;
    // The job of the open request starts before SIGQUIT, and ends after it.
    let started = seq("the job starts", &|what| *what == What::JobStarted { job });
    let finished = seq("the job ends", &|what| *what == What::JobFinished { job });
    assert!(requested.seq < started && started < quit && quit < finished, "in\n{events}");
    for event in &all {
        let What::JobRequestOpened { request, .. } = event.what else { continue };
        let closed = What::JobRequestClosed { request, cancelled: false };
        assert!(seq("the request ends", &|what| *what == closed) < quit, "request {request} in\n{events}");
    }
}
