//! The wrapper of a draining runner is killed again and again: no job is lost, there is one runner, and the requested drain continues.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use grit_testkit::rounds;
use grit_tests::{
    lab::{Lab, event::What, host::Host},
    poll,
    rollout::is_signal,
    terraform,
};
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(60);

/// A host whose runner accepts jobs.
fn host(lab: &Lab) -> Host {
    let (_, host) = lab.cloud().create("blue", "19.2.0").unwrap();
    lab.events()
        .wait_for("the runner takes jobs", LIMIT, |event| matches!(event.what, What::RunnerPolling { .. }));
    host
}

/// The exit code of an operator command without a reachable wrapper.
const UNREACHABLE: i32 = 2;

/// The maximum of the median response time of the next wrapper; single rounds may be slower on a busy machine.
const RECOVERY: Duration = Duration::from_secs(2);

/// The output of an operator command, from a wrapper that may still start. It is retried while there is no listener; any other error is a
/// failure.
fn ask(host: &Host, words: &[&str]) -> serde_json::Value {
    let address = host.wrapper_address();
    let program = terraform::built("grit-wrapper").unwrap();
    poll::until("the wrapper answers", LIMIT, || {
        let asked =
            Command::new(&program).args(words).args(["--json", "--address", &address]).output().unwrap();
        if asked.status.success() {
            return Ok(serde_json::from_slice(&asked.stdout).unwrap());
        }
        let error = String::from_utf8_lossy(&asked.stderr).into_owned();
        assert_eq!(asked.status.code(), Some(UNREACHABLE), "{words:?}: {error}");
        Err(error)
    })
}

/// Asserts that the next wrapper responds soon.
fn assert_recovery(mut times: Vec<Duration>) {
    times.sort();
    assert!(times[times.len() / 2] <= RECOVERY, "half of the wrappers took longer to answer: {times:?}");
}

/// Waits for the wrapper's process and for a time that differs in each round, kills it, and starts the next one. Returns the time of this start.
fn kill(host: &Host, round: u32) -> Instant {
    let pid = poll::until("a wrapper runs", LIMIT, || host.wrapper_pid().ok_or(()));
    let moment = Instant::now() + Duration::from_micros(u64::from(round) * 7919 % 60_000);
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    poll::until("the wrapper is dead", LIMIT, || host.wrapper_pid().map_or(Ok(()), Err));
    let started = Instant::now();
    host.start_wrapper().unwrap();
    started
}

/// Also measures how long every tenth next wrapper takes to answer.
fn kill_and_measure(host: &Host, round: u32, recovery: &mut Vec<Duration>) {
    let started = kill(host, round);
    if round % 10 == 9 {
        ask(host, &["status"]);
        recovery.push(started.elapsed());
    }
}

fn starts(lab: &Lab) -> usize {
    lab.events().all().iter().filter(|event| matches!(event.what, What::RunnerStarted { .. })).count()
}

#[test]
fn killed_wrappers_of_a_draining_runner_lose_no_job_or_drain() {
    let kills: u32 = rounds(20, 100);
    let lab = Lab::start().unwrap();
    // The kernel signals the runner of a killed wrapper, too.
    lab.expect_anything();
    let host = host(&lab);
    let runner = host.runner_pid();
    let held = lab.queue().submit_held(2);
    lab.queue().wait_until_none_waits(LIMIT);
    ask(&host, &["drain", "--id", "deploy-7"]);
    lab.events().wait_for("the drain", LIMIT, |event| is_signal(event, "SIGQUIT"));
    let mut recovery = Vec::new();
    for round in 0..kills {
        kill_and_measure(&host, round, &mut recovery);
        assert_eq!(host.runner_pid(), runner, "round {round}");
    }
    assert_recovery(recovery);
    let status = ask(&host, &["status"]);
    assert_eq!(
        (&status["state"], &status["drain"]["id"]),
        (&"draining".into(), &"deploy-7".into()),
        "{status}"
    );
    lab.queue().release(&held);
    poll::until("the runner ends", LIMIT, || host.runner_pid().map_or(Ok(()), Err));
    kill(&host, 0);

    // The next one does not start a runner.
    let status = poll::until("the wrapper knows", LIMIT, || match ask(&host, &["status"]) {
        status if status["state"] == "stopped" => Ok(status),
        status => Err(status),
    });
    assert_eq!(status["drain"]["id"], "deploy-7", "{status}");
    let tally = lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, tally.open()), (held.len(), 0, 0));
    assert_eq!(starts(&lab), 1, "there was a second runner");
    let signals: Vec<_> = lab
        .events()
        .all()
        .into_iter()
        .filter(|event| matches!(event.what, What::RunnerSignal { .. }))
        .collect();
    assert!(signals.iter().all(|event| is_signal(event, "SIGQUIT")), "{signals:?}");
    let left: Vec<_> =
        host.processes().into_iter().filter(|process| process.program != "grit-wrapper").collect();
    assert!(left.is_empty(), "orphans: {left:?}");
}
