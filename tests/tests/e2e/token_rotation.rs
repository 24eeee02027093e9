//! The statements of docs/guides/token-rotation.md about this provider. GitLab and GitLab Runner are stand-ins: what a runner does with a token that
//! changes in its configuration is not part of these tests.

use std::time::Duration;

use grit_tests::rollout::{PATIENCE, Rollout};
use serde_json::json;

const GUIDE: &str = include_str!("../../../docs/guides/token-rotation.md");
const REASON: &str = "token_rejected";

/// Version 1 of a manager, with the old token. Each later version has another token.
fn fleet() -> Rollout {
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.cloud().shape(|name, spec| {
        spec.tokens = Some(vec![name.replace("m1-", "glrt-")]);
        // As with GitLab Runner's default of 3 s, the third rejection comes after the minimum time of the process.
        spec.check_interval = Duration::from_secs(1);
    });
    rollout.deploy(&["m1-v1"]);
    rollout
}

/// Rolls out the new token. The jobs of the old manager end during its drain.
fn rotate(rollout: &mut Rollout, jobs: &[u64], new: &str) {
    rollout.managers(&[new]).unwrap();
    let run = rollout.apply_while(|| {
        rollout.wait_for_drain("m1-v1");
        rollout.lab.queue().release(jobs);
    });
    run.unwrap().succeeded();
    assert_eq!(rollout.hosts(), [new]);
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m1-v1"), Some(false));
    // The new manager accepts jobs with its token.
    rollout.lab.queue().submit(1, Duration::ZERO);
    let tally = rollout.lab.queue().wait_all_ended(PATIENCE).unwrap();
    assert_eq!((tally.finished, tally.lost), (jobs.len() + 1, 0));
}

#[test]
fn rollout_with_new_token_loses_no_job() {
    let mut rollout = fleet();
    let jobs = rollout.hold_jobs(2);
    rotate(&mut rollout, &jobs, "m1-v2");
}

#[test]
fn rejected_new_token_keeps_old_manager() {
    assert!(GUIDE.contains(&format!("`{REASON}`")));
    let mut rollout = fleet();
    rollout.lab.expect(&["m1-v1 was drained before a newer one took jobs"]);
    let jobs = rollout.hold_jobs(2);
    rollout.lab.queue().refuse_token("glrt-v2");
    rollout.set("health", json!({ "update": "10m" })).unwrap();
    rollout.managers(&["m1-v2"]).unwrap();
    let run = rollout.workspace.apply().unwrap().failed();
    let errors = run.errors();
    assert!(errors.iter().any(|(_, detail)| detail.contains(REASON)), "{errors:?}");
    assert_eq!(rollout.signals("m1-v1"), [""; 0]);

    // The correct token, in another version.
    rotate(&mut rollout, &jobs, "m1-v3");
}

/// A reset of the token, while the old manager has jobs.
#[test]
fn jobs_finish_after_reset_of_old_token() {
    let mut rollout = fleet();
    let jobs = rollout.hold_jobs(2);
    rollout.lab.queue().refuse_token("glrt-v1");
    rotate(&mut rollout, &jobs, "m1-v2");
}
