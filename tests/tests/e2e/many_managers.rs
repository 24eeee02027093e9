//! More managers than Terraform handles in parallel.

use grit_tests::rollout::{PATIENCE, Rollout};
use serde_json::json;

/// The default of `-parallelism`.
const AT_A_TIME: usize = 10;

#[test]
fn twelve_managers_checked_at_once_drained_ten_at_a_time() {
    let mut rollout = Rollout::start().unwrap();
    let names: Vec<_> = (1..=12).map(|number| format!("m{number:02}-v1")).collect();
    rollout.lab.cloud().shape(|_, spec| spec.concurrent = 1);
    rollout.managers(&names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    rollout.set("health", json!({ "create": "120s" })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    let state = rollout.workspace.state().unwrap();
    let managers = &state.at("grit_runner_health.all")[0].attributes["managers"];
    assert_eq!(managers.as_object().map(serde_json::Map::len), Some(12), "{managers}");

    let jobs = rollout.hold_jobs(12);
    let drained = || names.iter().filter(|name| !rollout.signals(name).is_empty()).count();
    std::thread::scope(|scope| {
        let destroy = scope.spawn(|| rollout.workspace.destroy().unwrap());
        grit_tests::poll::until("ten drains are under way", PATIENCE, || match drained() {
            AT_A_TIME => Ok(()),
            other => Err(other),
        });
        rollout.lab.queue().release(&jobs);
        destroy.join().unwrap().succeeded();
    });
    assert_eq!(drained(), 12);
    let tally = rollout.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (12, 0));
    assert_eq!(rollout.hosts(), Vec::<String>::new());
}
