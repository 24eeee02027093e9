//! Features of OpenTofu only: `lifecycle { destroy = false }`, `-exclude`, and a state that is written at the end.

use std::time::Duration;

use grit_tests::{
    rollout::{PATIENCE, Rollout},
    terraform::{core, need},
};
use rustix::process::Signal;

use super::configuration::{CREATE_FIRST, NEW, OLD, drain, health_check, instance, over_the_drain};

const KEEP: &str = "lifecycle {\n    create_before_destroy = true\n    destroy = false\n  }";

/// A deployment that OpenTofu applied.
fn applied(configuration: &str) -> Rollout {
    need(core().has_destroy_false_and_exclude());
    let rollout = Rollout::of(configuration).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    rollout
}

#[test]
fn opentofu_destroy_false_on_drain_skips_draining() {
    let both = |version: &str, lifecycle: &str| instance("m", version, CREATE_FIRST) + &drain("m", lifecycle);
    let rollout = applied(&both(OLD, CREATE_FIRST));
    rollout.lab.expect(&["m was destroyed while its runner ran"]);
    rollout.workspace.write("main.tf", &both(NEW, KEEP)).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m"), Vec::<String>::new());
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m"), Some(true));
}

#[test]
fn opentofu_destroy_false_on_instance_drains_and_keeps_it() {
    let both = |version: &str| instance("m", version, KEEP) + &drain("m", CREATE_FIRST);
    let rollout = applied(&both(OLD));
    rollout.workspace.write("main.tf", &both(NEW)).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m"), ["SIGQUIT"]);
    assert_eq!(rollout.hosts(), ["m", "m.2"]);

    let destroyed = rollout.workspace.destroy().unwrap().failed();
    assert_eq!(rollout.signals("m.2"), ["SIGQUIT"]);
    assert_eq!(rollout.hosts(), ["m", "m.2"]);
    assert!(destroyed.stdout.contains("forgotten"), "{}", destroyed.stdout);
}

#[test]
fn opentofu_excluded_drain_does_not_drain_instance() {
    let both = |version: &str| instance("m", version, CREATE_FIRST) + &drain("m", CREATE_FIRST);
    let rollout = applied(&both(OLD));
    rollout.lab.expect(&["m was destroyed while its runner ran"]);
    rollout.workspace.write("main.tf", &both(NEW)).unwrap();
    let apply = ["apply", "-json", "-auto-approve", "-exclude=grit_runner_drain.m"];
    rollout.workspace.run(apply).unwrap().succeeded();
    assert_eq!(rollout.signals("m"), Vec::<String>::new());
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m"), Some(true));
}

#[test]
fn opentofu_excluded_health_check_drains_without_health() {
    let all = |version: &str| {
        instance("m", version, CREATE_FIRST)
            + &drain("m", CREATE_FIRST)
            + &health_check("m", &over_the_drain("m"), "60s", CREATE_FIRST)
    };
    let rollout = applied(&all(OLD));
    rollout.lab.expect(&["m was drained before a newer one took jobs"]);
    rollout.lab.cloud().shape(|_, spec| spec.boot_takes = Duration::from_secs(3600));
    rollout.workspace.write("main.tf", &all(NEW)).unwrap();
    let apply = ["apply", "-json", "-auto-approve", "-exclude=grit_runner_health.m"];
    rollout.workspace.run(apply).unwrap().succeeded();
    assert_eq!(rollout.signals("m"), ["SIGQUIT"]);
}

#[test]
fn opentofu_killed_during_drain_rolls_forward() {
    let both = |version: &str| instance("m", version, CREATE_FIRST) + &drain("m", CREATE_FIRST);
    let rollout = applied(&both(OLD));
    let jobs = rollout.hold_jobs(1);
    rollout.workspace.write("main.tf", &both(NEW)).unwrap();
    let session = rollout.workspace.start(["apply", "-auto-approve"]).unwrap();
    rollout.wait_for_drain("m");
    session.signal(Signal::KILL).unwrap();
    session.wait(PATIENCE);
    rollout.workspace.providers().assert_none_left(PATIENCE);
    let state = rollout.workspace.state().unwrap();
    assert_eq!(state.at("lab_instance.m").len(), 1, "the new instance is not in the state: {state:?}");

    rollout.lab.queue().release(&jobs);
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m"), ["SIGQUIT"], "joined, not asked again");
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m"), Some(false));
    assert_eq!(rollout.hosts(), ["m.2", "m.3"], "the first new instance is left over");
}
