//! On a booted systemd: drains of the runner in GitLab's unit, by a client and by `systemctl`, and what starts the runner again.

use std::{fs, time::Duration};

use grit_testkit::program;
use grit_tests::{
    debian::machine::{LIMIT, Machine, RUNNER_UNIT, WRAPPER_UNIT},
    lab::{host::procs, queue::JobState},
    poll,
};

use crate::systemd::{
    adjust, assert_clean, assert_closed, crash, drop_in, leave_gaps, machine, while_jobs_run,
};

/// Jobs all the time, so that the runner requests jobs all the time.
const SHORT: Duration = Duration::from_millis(800);

fn gate_exists(machine: &Machine) -> bool {
    machine.system.path(&format!("/run/grit-wrapper/held/{RUNNER_UNIT}")).exists()
}

#[test]
fn systemctl_stop_and_restart_drain_in_a_gap() {
    let Some(machine) = machine(&[]) else { return };
    leave_gaps(&machine);
    machine.start_with_wrapper();
    let held = machine.hold_jobs(1);
    let load = machine.lab.queue().load(3, SHORT);
    while_jobs_run(&machine, &held, 1, || {
        machine.run(&["systemctl", "restart", RUNNER_UNIT]);
    });
    machine.wait_level("polling");
    assert_eq!(machine.starts(), 2);

    let held = machine.lab.queue().submit_held(1);
    let is_running = |job: &u64| matches!(machine.lab.queue().job(*job), Some(JobState::Running { .. }));
    poll::until("the job runs", LIMIT, || match held.iter().all(is_running) {
        true => Ok(()),
        false => Err(machine.lab.queue().tally()),
    });
    while_jobs_run(&machine, &held, 2, || {
        machine.run(&["systemctl", "stop", RUNNER_UNIT]);
    });
    let status = machine.wait_state("stopped");
    assert_eq!(status["drain"]["id"], "signal", "{status}");
    assert_clean(&machine, &status);
    let shown = ["ActiveState", "Result", "ExecMainCode", "ExecMainStatus"]
        .map(|name| machine.property(RUNNER_UNIT, name));
    assert_eq!(shown, ["inactive", "success", "1", "0"]);

    // A person has stopped the runner, and can start it.
    assert!(!gate_exists(&machine));
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    machine.wait_level("polling");
    drop(load);
    assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0);
    machine.assert_never_two_runners(0);
    assert_eq!((machine.starts(), machine.signals()), (3, vec!["SIGQUIT".to_owned(); 2]));
}

/// The wrapper is stopped and masked, or was never started, or hangs.
#[test]
fn stop_without_wrapper_drains_in_a_gap() {
    let Some(machine) = machine(&[]) else { return };
    leave_gaps(&machine);
    adjust(&machine, "WatchdogSec=10s");
    machine.run(&["systemctl", "start", RUNNER_UNIT]);
    machine.install("1.0.0");
    let load = machine.lab.queue().load(3, SHORT);
    for round in 1..=3 {
        let kill = ["systemctl", "kill", "--kill-who=main", "--signal=STOP", WRAPPER_UNIT];
        match round {
            1 => {}
            2 => drop(machine.run(&["systemctl", "mask", "--now", WRAPPER_UNIT])),
            _ => {
                machine.run(&["systemctl", "unmask", WRAPPER_UNIT]);
                machine.run(&["systemctl", "start", WRAPPER_UNIT]);
                machine.run(&kill);
            }
        }
        // Older than --start-grace.
        poll::until("jobs are finished", LIMIT, || match machine.lab.queue().runner("machine").polls {
            polls if polls > 20 * round => Ok(()),
            polls => Err(polls),
        });
        machine.run(&["systemctl", "stop", RUNNER_UNIT]);
        assert_eq!(machine.runner(), None);
        let shown = ["ActiveState", "Result", "ExecMainCode", "ExecMainStatus"]
            .map(|name| machine.property(RUNNER_UNIT, name));
        assert_eq!(shown, ["inactive", "success", "1", "0"], "{}", machine.journal());
        machine.run(&["systemctl", "start", RUNNER_UNIT]);
    }
    drop(load);
    assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0, "{}", machine.journal());
    machine.assert_never_two_runners(0);
    assert_eq!(
        (machine.starts(), machine.signals()),
        (4, vec!["SIGQUIT".to_owned(); 3]),
        "{}",
        machine.journal()
    );
}

/// A client's drain: neither systemd nor a person starts the runner again, also under the next wrapper.
#[test]
fn drained_runner_is_started_by_the_wrapper_only() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    let jobs = machine.hold_jobs(1);
    let start = || drop(machine.run(&["systemctl", "start", RUNNER_UNIT]));
    machine.ask(&["drain", "--id", "deploy-7"]);
    machine.wait_signals(1);
    assert_eq!(
        machine.property(RUNNER_UNIT, "ActiveState"),
        "active",
        "the unit is not stopped while jobs run"
    );
    // It starts nothing, now and after the exit.
    start();
    crash(&machine, "KILL");
    machine.wait_state("draining");
    machine.run(&["systemctl", "restart", "--no-block", RUNNER_UNIT]);
    machine.wait_property(RUNNER_UNIT, "ActiveState", "deactivating");
    // As an upgrade of systemd.
    machine.run(&["systemctl", "daemon-reexec"]);
    machine.lab.queue().release(&jobs);
    assert_clean(&machine, &machine.wait_state("stopped"));

    machine.wait_property(RUNNER_UNIT, "ActiveState", "inactive");
    assert_closed(&machine, start);
    crash(&machine, "KILL");
    let status = machine.wait_state("stopped");
    assert_eq!(status["drain"]["id"], "deploy-7", "{status}");
    assert_clean(&machine, &status);
    machine.run(&["systemctl", "daemon-reload"]);
    assert_closed(&machine, || drop(machine.run(&["systemctl", "restart", RUNNER_UNIT])));
    assert_eq!((machine.signals(), machine.starts()), (vec!["SIGQUIT".to_owned()], 1));

    machine.run(&["grit-wrapper", "start"]);
    machine.wait_level("polling");
    assert!(!gate_exists(&machine));
    machine.assert_never_two_runners(0);
    assert_eq!(machine.starts(), 2);

    // A drain that is cancelled closes nothing. While the only open request is answered late, there is no gap.
    machine.lab.queue().set_latency(Duration::from_secs(2)..=Duration::from_secs(2));
    machine.ask(&["drain"]);
    machine.run(&["grit-wrapper", "cancel"]);
    machine.lab.queue().set_latency(Duration::ZERO..=Duration::ZERO);
    poll::until("the gate is open", LIMIT, || {
        if gate_exists(&machine) { Err(machine.journal()) } else { Ok(()) }
    });
    assert_eq!((machine.signals().len(), machine.starts()), (1, 2), "{}", machine.journal());
}

#[test]
fn reboot_waits_for_jobs_and_ends_a_drain() {
    let Some(mut machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    for (round, drain) in [false, true].into_iter().enumerate() {
        let jobs = machine.hold_jobs(2);
        if drain {
            machine.ask(&["drain", "--id", "deploy-7"]);
            machine.wait_signals(round + 1);
        }
        let Machine { lab, system, .. } = &mut machine;
        std::thread::scope(|scope| {
            let rebooted = scope.spawn(|| system.reboot());
            poll::until("a signal to the runner", LIMIT, || match lab.events().signals(None).len() {
                signals if signals > round => Ok(()),
                signals => Err(signals),
            });
            lab.queue().release(&jobs);
            rebooted.join().unwrap().unwrap();
        });
        machine.wait_level("polling");
        let status = machine.ask(&["status"]);
        assert!(status["drain"].is_null(), "{status}");
        assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0, "{}", machine.journal());
        machine.assert_never_two_runners(0);
        assert_eq!(machine.starts(), round + 2);
    }
    assert_eq!(machine.signals(), vec!["SIGQUIT".to_owned(); 2]);
}

/// GitLab's package stops its service, removes and writes the unit file, and starts the service.
#[test]
fn upgrade_of_gitlabs_package_drains_and_respects_drains() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    let jobs = machine.hold_jobs(1);
    while_jobs_run(&machine, &jobs, 1, || machine.upgrade_runner());
    machine.wait_level("polling");
    assert_eq!(machine.starts(), 2);
    assert_eq!(machine.property(RUNNER_UNIT, "KillMode"), "mixed", "the drop-in outlives the unit file");

    // In a client's drain, with a stop that is older than systemd's default timeout for stops.
    let jobs = machine.hold_jobs(1);
    machine.ask(&["drain", "--id", "deploy-8"]);
    machine.wait_signals(2);
    assert_closed(&machine, || {
        std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| machine.upgrade_runner());
            machine.wait_property(RUNNER_UNIT, "ActiveState", "deactivating");
            // As an upgrade of another package.
            machine.run(&["systemctl", "daemon-reload"]);
            assert!(!upgrade.is_finished());
            machine.lab.queue().release(&jobs);
            upgrade.join().unwrap();
        });
    });
    let status = machine.wait_state("stopped");
    assert_eq!(status["drain"]["id"], "deploy-8", "{status}");
    assert_clean(&machine, &status);

    // After the drain.
    assert_closed(&machine, || machine.upgrade_runner());
    machine.run(&["grit-wrapper", "start"]);
    machine.wait_level("polling");

    // The unit file is removed while the runner drains: the exit code is known.
    let jobs = machine.hold_jobs(1);
    machine.ask(&["drain", "--id", "deploy-9"]);
    machine.wait_signals(3);
    machine.remove_runner_unit();
    machine.lab.queue().release(&jobs);
    assert_clean(&machine, &machine.wait_state("stopped"));
    machine.assert_never_two_runners(0);
    assert_eq!((machine.starts(), machine.signals()), (3, vec!["SIGQUIT".to_owned(); 3]));
}

#[test]
fn systemd_restarts_runner_that_crashed() {
    let Some(machine) = machine(&["--job-process=stubborn"]) else { return };
    machine.lab.expect_lost(1);
    machine.start_with_wrapper();
    machine.hold_jobs(1);
    machine.wait_level("polling");
    let kill = || drop(machine.run(&["systemctl", "kill", "--kill-who=main", "--signal=KILL", RUNNER_UNIT]));
    kill();
    let status = machine.wait_state("backoff");
    assert_eq!(status["exit"]["how"]["signal"], 9, "{status}");
    assert_eq!(
        job_processes(&machine),
        0,
        "systemd ends the jobs of a crashed runner before it starts the next"
    );
    let status = machine.wait_state("running");
    assert_eq!(status["restarts"], 1, "{status}");
    machine.wait_status("the reason", |status| {
        status["health"]["reasons"]
            .to_string()
            .contains("exited unexpectedly and was restarted less than 60s ago")
    });
    assert_eq!(machine.lab.queue().tally().lost, 1, "the job of the killed runner");
    machine.assert_never_two_runners(1);

    // systemd does not restart it.
    drop_in(&machine, RUNNER_UNIT, "[Service]\nRestart=no\n");
    kill();
    let status = machine.wait_state("failed");
    assert_eq!(status["exit"]["how"]["signal"], 9, "{status}");
    assert!(!gate_exists(&machine));
    machine.run(&["grit-wrapper", "start"]);
    machine.wait_level("polling");
    machine.assert_never_two_runners(2);
    assert_eq!((machine.starts(), machine.signals()), (3, vec![]));
}

/// Waits until systemd has stopped the unit: `failed` if it did so before it began to wait for the restart.
fn wait_over(machine: &Machine) {
    poll::until("the unit is over", LIMIT, || match machine.property(RUNNER_UNIT, "ActiveState").as_str() {
        "inactive" | "failed" => Ok(()),
        other => Err(other.to_owned()),
    });
}

/// The processes of jobs on the machine.
fn job_processes(machine: &Machine) -> usize {
    let processes = procs::descendants(machine.system.init());
    processes.into_iter().filter(|process| process.program == "sleep").count()
}

#[test]
fn forceful_drain_leaves_no_job_process() {
    let Some(machine) = machine(&["--job-process=stubborn"]) else { return };
    machine.lab.expect_lost(2);
    machine.lab.expect(&["machine exited with 1 after its drain", "machine received SIGQUIT, SIGTERM"]);
    machine.change_config(|text| format!("shutdown_timeout = 1\n{text}"));
    machine.start_with_wrapper();
    machine.hold_jobs(2);
    poll::until("the processes of two jobs", LIMIT, || match job_processes(&machine) {
        2 => Ok(()),
        count => Err(count),
    });
    crash(&machine, "KILL");
    machine.ask(&["drain"]);
    machine.wait_signals(1);
    machine.ask(&["drain", "--force"]);
    let status = machine.wait_status("the runner has exited", |status| status["pid"].is_null());
    // The runner's own code after `shutdown_timeout`.
    assert_eq!((&status["state"], &status["exit"]["how"]["code"]), (&"failed".into(), &1.into()), "{status}");
    poll::until("no process of a job", LIMIT, || match job_processes(&machine) {
        0 => Ok(()),
        count => Err((count, machine.journal())),
    });
    assert_eq!(machine.signals(), ["SIGQUIT", "SIGTERM"]);
    wait_over(&machine);
    assert_eq!((machine.runner(), machine.starts()), (None, 1), "{}", machine.journal());
    assert_eq!(machine.lab.queue().tally().lost, 2);
}

/// It ignores SIGQUIT and SIGTERM.
#[test]
fn stubborn_runner_is_killed_at_the_deadline() {
    let Some(machine) = machine(&[]) else { return };
    let script = "trap '' QUIT TERM; sleep 86400 & while :; do sleep 0.1; done";
    program::script(&machine.system.path("/usr/bin/gitlab-runner"), script).unwrap();
    adjust(
        &machine,
        "Environment=GRIT_WRAPPER_PROCESS_TERMINATION_TIMEOUT=1s GRIT_WRAPPER_REQUEST_GAP_TIMEOUT=0s",
    );
    machine.start_with_wrapper();
    machine.wait_state("running");
    machine.ask(&["drain", "--deadline", "5s"]);
    machine.wait_status("SIGQUIT", |status| status["drain"]["signalled"] == true);
    let status = machine.wait_status("the runner has exited", |status| status["pid"].is_null());
    assert_eq!(
        (&status["drain"]["outcome"], &status["exit"]["how"]["signal"]),
        (&"killed".into(), &9.into()),
        "{status}"
    );
    poll::until("no process of the unit", LIMIT, || match job_processes(&machine) {
        0 => Ok(()),
        count => Err((count, machine.journal())),
    });
    wait_over(&machine);
    assert_eq!((machine.runner(), machine.property(RUNNER_UNIT, "NRestarts").as_str()), (None, "0"));
}

/// As at machine shutdown: Docker, in which jobs run, must be available until the runner has exited. A shutdown does not stop the wrapper.
#[test]
fn runner_stops_before_docker() {
    let Some(machine) = machine(&[]) else { return };
    let docker = "[Service]\nExecStart=/bin/sleep infinity\n";
    fs::write(machine.system.path("/etc/systemd/system/docker.service"), docker).unwrap();
    let target = format!("[Unit]\nRequires=basic.target\nWants={WRAPPER_UNIT}\nAllowIsolate=yes\n");
    fs::write(machine.system.path("/etc/systemd/system/quiet.target"), target).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", "docker.service"]);
    machine.start_with_wrapper();
    let jobs = machine.hold_jobs(1);
    // Stops them in one transaction, as a shutdown does.
    machine.run(&["systemctl", "isolate", "--no-block", "quiet.target"]);
    machine.wait_signals(1);
    assert_eq!(machine.property("docker.service", "ActiveState"), "active");
    machine.lab.queue().release(&jobs);
    machine.wait_property("docker.service", "ActiveState", "inactive");
    assert_eq!(machine.property(RUNNER_UNIT, "ActiveState"), "inactive");
    assert_clean(&machine, &machine.wait_state("stopped"));
}
