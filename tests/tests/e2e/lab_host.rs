//! A host of the lab runs jobs, and ends with all its processes. The other tests show its other properties.

use grit_tests::{
    lab::{Lab, event::What, host::procs, queue::Tally},
    poll,
    rollout::PATIENCE,
};

#[test]
fn instance_runs_jobs_and_ends_all_its_processes() {
    let lab = Lab::start().unwrap();
    lab.expect_anything();
    let (instance, host) = lab.cloud().create("blue", "19.1.0").unwrap();
    assert_eq!(lab.cloud().get(&instance.id).unwrap().0, instance);
    lab.queue().submit_held(3);
    poll::until("jobs run", PATIENCE, || match lab.queue().tally() {
        tally if tally.running == 3 => Ok(()),
        tally => Err(tally),
    });
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
