//! Fixed keys, which no example has. [`crate::rollout_examples`] tests the layouts of the examples.

use grit_tests::{
    lab::event::{Event, What},
    rollout::{Rollout, is_signal},
};
use serde_json::json;

use super::configuration::{NEW, OLD};

/// The index of the first such event of a host.
#[track_caller]
fn seq(rollout: &Rollout, host: &str, what: impl Fn(&Event) -> bool) -> usize {
    let events = rollout.lab.events();
    let found = events.find(|event| event.subject == host && what(event));
    found.unwrap_or_else(|| panic!("nothing of that kind on {host}:\n{events}")).seq
}

/// Asserts the order from the event log: new healthy, old drained, old exited, old destroyed.
#[track_caller]
fn assert_rolled(rollout: &Rollout, old: &str, new: &str) {
    let order = [
        seq(rollout, new, |event| matches!(event.what, What::RunnerPolling { .. })),
        seq(rollout, old, |event| is_signal(event, "SIGQUIT")),
        seq(rollout, old, |event| matches!(event.what, What::RunnerExiting { code: 0, .. })),
        seq(rollout, old, |event| {
            matches!(event.what, What::InstanceTerminating { runner_alive: false, .. })
        }),
    ];
    assert!(order.is_sorted(), "{old} to {new}: {order:?} in\n{}", rollout.lab.events());
}

#[test]
fn fixed_keys_roll_in_order_and_rollback_creates_instance() {
    let mut rollout = Rollout::start().unwrap();
    // GitLab rejects the third one.
    rollout.lab.expect(&["m1.2 was drained before a newer one took jobs"]);
    rollout.set("managers", json!({ "m1": OLD })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    rollout.set("managers", json!({ "m1": NEW })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_rolled(&rollout, "m1", "m1.2");

    // After a failed health check the rollback creates a new instance of the running version.
    rollout.lab.queue().refuse_token("glrt-m1.3");
    rollout.set("health", json!({ "update": "6s" })).unwrap();
    rollout.set("managers", json!({ "m1": "19.2.3" })).unwrap();
    rollout.workspace.apply().unwrap().failed();
    assert_eq!(rollout.hosts(), ["m1.2", "m1.3"]);
    rollout.set("health", json!({})).unwrap();
    rollout.set("managers", json!({ "m1": NEW })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.hosts(), ["m1.4"]);
    assert_rolled(&rollout, "m1.2", "m1.4");
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m1.3"), Some(false));
}
