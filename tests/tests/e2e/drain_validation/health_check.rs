//! A value that becomes invalid only in the apply, below a health check: the health check fails, so nothing is drained or destroyed.

use grit_tests::rollout::{assert_order, is_signal};

use super::*;

/// A health check over the drain.
const OVER_THE_DRAIN: &str = "{ m = grit_runner_drain.m.runner_manager }";

/// The same if `address` is right. If not, the map is unknown at plan, and null in the apply.
const NULL_IN_THE_APPLY: &str = r#"var.address == "right" ? { m = grit_runner_drain.m.runner_manager } : jsondecode(join("", ["null", substr(lab_instance.m.id, 0, 0)]))"#;

fn health_check(runner_managers: &str) -> String {
    format!(
        r#"
resource "grit_runner_health" "all" {{
  runner_managers = {runner_managers}
  drains          = {{ m = grit_runner_drain.m.id }}
  timeouts        = {{ create = "60s", update = "60s" }}
  lifecycle {{ create_before_destroy = true }}
}}
"#
    )
}

/// The apply of version 2 fails at the health check, with version 1 unchanged. The apply after the fix keeps the order.
fn health_check_fails(runner_managers: &str, bad: &str, summary: &str, attribute: &str) {
    let roll = Roll::start(&health_check(runner_managers));
    roll.set("19.2.2", &Json::from(bad).to_string());
    // The plan succeeds: the value is not known yet.
    let failed = roll.apply(true).failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert_eq!(errors[0].0, summary, "{errors:#?}");
    assert!(errors[0].1.contains(attribute), "{attribute}: {errors:#?}");
    assert!(errors[0].1.ends_with("Code: invalid_config"), "{errors:#?}");

    // The new instance and its drain resource are stored; no destroy has started.
    let timeline = failed.timeline();
    assert_order(&timeline, &["complete create grit_runner_drain.m"]);
    assert!(!timeline.iter().any(|line| line.contains("delete")), "{timeline:#?}");
    let events = roll.lab.events();
    assert!(events.find(|event| is_signal(event, "SIGQUIT")).is_none(), "{events}");
    assert_eq!(roll.terminated(), [], "{events}");
    assert_eq!(roll.lab.cloud().instances().len(), 2, "{events}");

    roll.set("19.2.2", "\"right\"");
    let fixed = roll.apply(false).succeeded();
    assert_order(
        &fixed.timeline(),
        &[
            "complete update grit_runner_health.all",
            "start delete grit_runner_drain.m",
            "complete delete grit_runner_drain.m",
            "start delete lab_instance.m",
        ],
    );
    assert_eq!(roll.terminated(), [("m".to_owned(), false)], "{}", roll.lab.events());
    assert_eq!(roll.workspace.plan().unwrap().succeeded().planned(), [""; 0]);
    roll.workspace.destroy().unwrap().succeeded();
}

#[test]
fn empty_address_of_the_apply_fails_the_health_check() {
    let attribute = "`runner_managers[\"m\"].address`";
    health_check_fails(OVER_THE_DRAIN, "\"\"", "Invalid address", attribute);
}

#[test]
fn null_managers_of_the_apply_fail_the_health_check() {
    let (wrong, attribute) = ("\"127.0.0.1:1\"", "`runner_managers`");
    health_check_fails(NULL_IN_THE_APPLY, wrong, "Required attribute is null", attribute);
}
