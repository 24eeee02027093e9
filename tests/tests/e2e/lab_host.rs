//! The hosts of the lab: boot, supervision, reachability and termination.

use std::time::Duration;

use grit_tests::{
    lab::{
        Lab,
        event::What,
        host::{Host, HostSpec, procs},
        queue::Tally,
    },
    poll,
};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(30);

fn polling(lab: &Lab, host: &Host) {
    lab.events().wait_for("the runner takes jobs", LIMIT, |event| {
        event.subject == host.instance_name() && matches!(event.what, What::RunnerPolling { .. })
    });
}

fn running(lab: &Lab, count: usize) {
    poll::until("jobs run", LIMIT, || match lab.queue().tally() {
        tally if tally.running == count => Ok(()),
        tally => Err(tally),
    });
}

#[test]
fn instance_runs_jobs_and_ends_all_its_processes() {
    let lab = Lab::start().unwrap();
    lab.expect_anything();
    let (instance, host) = lab.cloud().create("blue", "19.1.0").unwrap();
    assert_eq!(lab.cloud().get(&instance.id).unwrap().0, instance);
    polling(&lab, &host);
    lab.queue().submit_held(3);
    running(&lab, 3);
    let before = host.processes();
    assert!(host.runner_pid().is_some() && host.wrapper_pid().is_some(), "{before:?}");

    assert_eq!(lab.cloud().destroy(&instance.id), Some(3));
    assert_eq!(lab.queue().tally(), Tally { lost: 3, ..Tally::default() });
    let left = procs::descendants(std::process::id());
    let still: Vec<_> = before.iter().filter(|process| left.contains(process)).collect();
    assert!(still.is_empty(), "{still:?}");
    std::net::TcpStream::connect(&instance.address).unwrap_err();
    assert_eq!(lab.cloud().destroy(&instance.id), None);

    let order: Vec<_> = lab
        .events()
        .all()
        .into_iter()
        .filter_map(|event| match event.what {
            What::InstanceCreated { .. } => Some("created"),
            What::InstanceBooted { .. } => Some("booted"),
            What::RunnerStarted { .. } => Some("started"),
            What::RunnerPolling { .. } => Some("polling"),
            What::InstanceTerminating { runner_alive: true, jobs: 3 } => Some("terminating"),
            What::InstanceRemoved { lost: 3 } => Some("removed"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["created", "booted", "started", "polling", "terminating", "removed"]);
}

#[test]
fn draining_runner_survives_wrapper_exit_but_not_host_reset() {
    let lab = Lab::start().unwrap();
    lab.expect_anything();
    let (instance, host) = lab.cloud().create("blue", "19.2.0").unwrap();
    polling(&lab, &host);
    let runner = host.runner_pid().unwrap();
    lab.queue().submit_held(1);
    lab.queue().wait_until_none_waits(LIMIT);
    host.signal_wrapper(Signal::KILL).unwrap();
    poll::until("the wrapper is dead", LIMIT, || host.wrapper_pid().map_or(Ok(()), Err));
    assert_eq!(host.runner_pid(), Some(runner), "an orphan of the host, still on it");
    assert_eq!(lab.cloud().destroy(&instance.id), Some(1));
    assert!(host.processes().is_empty());
}

#[test]
fn instances_with_same_name_get_distinct_names() {
    let lab = Lab::start().unwrap();
    let (first, _) = lab.cloud().create("blue", "19.1.0").unwrap();
    let (second, _) = lab.cloud().create("blue", "19.2.0").unwrap();
    assert_eq!((first.instance_name.as_str(), second.instance_name.as_str()), ("blue", "blue.2"));
    assert_ne!(first.address, second.address);
    assert_ne!(first.host_key, second.host_key);
}

#[test]
fn boot_delay_and_runner_options_are_applied() {
    let lab = Lab::start().unwrap();
    lab.cloud().shape(|name, spec: &mut HostSpec| {
        assert_eq!(name, "slow");
        spec.boot_takes = Duration::from_millis(300);
        spec.configured = false;
    });
    let (_, host) = lab.cloud().create("slow", "18.0").unwrap();
    assert!(host.processes().is_empty(), "SSH answers, and nothing else runs yet");
    lab.events().wait_for(
        "the runner starts",
        LIMIT,
        |event| matches!(&event.what, What::RunnerStarted { version, .. } if version == "18.0.0"),
    );
    assert!(!host.folder().join("config.toml").exists());
}

#[test]
fn jobs_finish_after_network_cut() {
    let lab = Lab::start().unwrap();
    let (instance, host) = lab.cloud().create("blue", "19.2.0").unwrap();
    polling(&lab, &host);
    host.cut_off();
    std::net::TcpStream::connect(&instance.address).unwrap_err();
    lab.queue().submit(2, Duration::ZERO);
    assert_eq!(lab.queue().wait_all_ended(LIMIT).unwrap().finished, 2);
    if grit_tests::sshd::is_installed() {
        host.reconnect().unwrap();
        std::net::TcpStream::connect(&instance.address).unwrap();
    }
}
