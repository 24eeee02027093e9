//! Drains that the health check must not start, and a target, with which they start although their drain resources stay.

use grit_tests::{
    poll,
    rollout::{PATIENCE, Rollout, main_before},
    terraform::core,
};
use serde_json::{Value as Json, json};

use super::{AT_A_TIME, deployed, drained, fleet, managers, names, started};

/// Without a refresh, Terraform before 1.16 passes nothing from the plan to the apply.
#[test]
fn plan_without_refresh_starts_drains_only_if_the_core_stores_it() {
    let old = fleet(managers(), "19.2.0", "-v1");
    let mut rollout = deployed(&old);
    rollout.set("managers", fleet(managers(), "19.2.1", "-v2")).unwrap();
    let (old, jobs) = (names(&old), rollout.hold_jobs(managers()));
    let command = ["apply", "-json", "-auto-approve", "-refresh=false"];
    std::thread::scope(|scope| {
        let apply = scope.spawn(|| rollout.workspace.run(command).unwrap());
        let is_stored = core().stores_planned_private();
        let at_once = if is_stored { old.len() } else { AT_A_TIME };
        poll::until("drains are in progress", PATIENCE * 3, || match drained(&rollout, &old) {
            count if count == at_once => Ok(()),
            other => Err(other),
        });
        assert_eq!(started(&rollout, "grit_runner_health.all").len(), if is_stored { old.len() } else { 0 });
        rollout.lab.queue().release(&jobs);
        apply.join().unwrap().succeeded();
    });
}

#[test]
fn failed_health_check_starts_no_drain() {
    let mut rollout = deployed(&fleet(1, "19.2.0", "-v1"));
    rollout.lab.queue().refuse_token("glrt-m01-v2");
    rollout.set("health", json!({ "update": "6s", "start_drains": true })).unwrap();
    rollout.set("managers", fleet(1, "19.2.1", "-v2")).unwrap();
    rollout.workspace.apply().unwrap().failed();
    assert_eq!(rollout.signals("m01-v1"), Vec::<String>::new());

    // The list of that plan is not used again.
    rollout.workspace.run(["apply", "-json", "-auto-approve", "-refresh=false"]).unwrap().failed();
    assert_eq!(rollout.signals("m01-v1"), Vec::<String>::new());
}

/// Two health checks. `of`: which one has each manager.
const TWO_HEALTH_CHECKS: &str = r#"
variable "of" {
  type = map(string)
}

resource "grit_runner_health" "check" {
  for_each = toset(["a", "b"])

  runner_managers = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager if lookup(var.of, key, "") == each.key }
  drains          = { for key, drain in grit_runner_drain.manager : key => drain.id if lookup(var.of, key, "") == each.key }
  start_drains    = true
  timeouts        = { create = "60s", update = "60s" }

  lifecycle {
    create_before_destroy = true
  }
}
"#;

fn with_two_health_checks(of: Json) -> Rollout {
    let main = format!("{}{TWO_HEALTH_CHECKS}", main_before("grit_runner_health"));
    let mut rollout = Rollout::of(&main).unwrap();
    rollout.set("managers", fleet(3, "19.2.0", "")).unwrap();
    rollout.set("of", of).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    rollout
}

#[test]
fn moved_manager_and_kept_drain_do_not_start() {
    let mut rollout = with_two_health_checks(json!({ "m01": "a", "m02": "a", "m03": "a" }));
    let mut managers = fleet(3, "19.2.0", "");
    managers["m01"] = "19.2.1".into();
    rollout.set("managers", managers).unwrap();
    rollout.set("of", json!({ "m01": "a", "m02": "b" })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(started(&rollout, "grit_runner_health.check"), ["m01"]);
    assert_eq!(rollout.signals("m01"), ["SIGQUIT"]);
    for host in ["m02", "m03"] {
        assert_eq!(rollout.signals(host), Vec::<String>::new(), "{host}");
    }
}

/// The plan with the health check as target has the whole rollout, but its apply destroys nothing.
#[test]
fn target_starts_drains_that_next_apply_ends() {
    let old = fleet(1, "19.2.0", "-v1");
    let mut rollout = deployed(&old);
    rollout.set("managers", fleet(1, "19.2.1", "-v2")).unwrap();
    let target = ["apply", "-json", "-auto-approve", "-target=grit_runner_health.all"];
    rollout.workspace.run(target).unwrap().succeeded();
    rollout.wait_for_drain("m01-v1");
    assert_eq!(rollout.hosts(), ["m01-v1", "m01-v2"]);
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.hosts(), ["m01-v2"]);
    assert_eq!(rollout.signals("m01-v1"), ["SIGQUIT"]);
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m01-v1"), Some(false));
}
