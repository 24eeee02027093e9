//! The wrapper is killed or upgraded while jobs run: no job is lost, there is one runner, and a requested drain continues.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
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

/// A host whose runner accepts jobs, as many as the test submits in the time of a round.
fn host(lab: &Lab, program: Option<PathBuf>) -> Host {
    lab.cloud().shape(move |_, spec| {
        spec.concurrent = 16;
        spec.request_concurrency = 8;
        spec.wrapper_program.clone_from(&program);
    });
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
fn killed_wrappers_under_load_lose_no_job_or_drain() {
    // A quarter of the kills happens during a drain.
    let kills: u32 = rounds(40, 200);
    let lab = Lab::start().unwrap();
    let host = host(&lab, None);
    let runner = host.runner_pid();
    let mut jobs = 0;
    let mut recovery = Vec::new();
    for round in 0..kills - kills / 4 {
        jobs += lab.queue().submit(1, Duration::from_millis(30)).len();
        kill_and_measure(&host, round, &mut recovery);
        assert_eq!(host.runner_pid(), runner, "round {round}");
    }

    let held = lab.queue().submit_held(2);
    jobs += held.len();
    lab.queue().wait_until_none_waits(LIMIT);
    ask(&host, &["drain", "--id", "deploy-7"]);
    lab.events().wait_for("the drain", LIMIT, |event| is_signal(event, "SIGQUIT"));
    for round in 0..kills / 4 {
        kill_and_measure(&host, round, &mut recovery);
        assert_eq!(host.runner_pid(), runner, "round {round} of the drain");
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

    // The next one does not start a runner, and keeps the exit reason.
    let status = poll::until("the wrapper knows", LIMIT, || match ask(&host, &["status"]) {
        status if status["state"] == "stopped" => Ok(status),
        status => Err(status),
    });
    assert_eq!(status["drain"]["id"], "deploy-7", "{status}");
    let tally = lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, tally.open()), (jobs, 0, 0));
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

#[test]
fn upgraded_wrapper_under_load_loses_no_job() {
    let upgrades: usize = rounds(40, 200);
    let lab = Lab::start().unwrap();
    let built = lab.folder().join("built");
    let installed = lab.folder().join("grit-wrapper");
    // Without debug information, so that copies are small.
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&built).arg(terraform::built("grit-wrapper").unwrap());
    assert!(strip.status().unwrap().success());
    replace(&built, &installed);
    let host = host(&lab, Some(installed.clone()));
    let runner = host.runner_pid();
    let wrapper = poll::until("a wrapper runs", LIMIT, || host.wrapper_pid().ok_or(()));
    ask(&host, &["status"]);
    let held = lab.queue().submit_held(1);
    let mut recovery = Vec::new();
    for _ in 0..upgrades {
        lab.queue().submit(4, Duration::from_millis(50));
        replace(&built, &installed);
        let started = Instant::now();
        kill_process(Pid::from_raw(wrapper.cast_signed()).unwrap(), Signal::USR1).unwrap();
        let inode = |path: &Path| fs::metadata(path).map(|file| file.ino()).ok();
        poll::until("the new binary runs", LIMIT, || {
            let running = inode(Path::new(&format!("/proc/{wrapper}/exe")));
            if running == inode(&installed) { Ok(()) } else { Err(running) }
        });
        let status = ask(&host, &["status"]);
        recovery.push(started.elapsed());
        assert_eq!(status["pid"].as_u64(), runner.map(u64::from), "{status}");
        assert_eq!(host.wrapper_pid(), Some(wrapper));
    }
    assert_recovery(recovery);
    lab.queue().release(&held);
    let tally = lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!((tally.finished, tally.lost), (4 * upgrades + 1, 0));
    assert_eq!(starts(&lab), 1, "there was a second runner");
    assert_eq!(host.runner_pid(), runner);
}

/// As a package manager does: writes the new file beside the old one, and renames it.
fn replace(program: &Path, installed: &Path) {
    let new = installed.with_extension("new");
    // Not by this process: a child that another test forks at that time would hold the new program open for writing.
    assert!(Command::new("cp").args([program, &new]).status().unwrap().success());
    fs::rename(new, installed).unwrap();
}
