//! Layouts that keep the order: two applies, a module per version, a canary, blue/green, fixed keys.

use grit_tests::{
    lab::event::{Event, What},
    rollout::{Rollout, assert_order, is_signal},
};
use serde_json::json;

use super::configuration::{CREATE_FIRST, NEW, OLD, drain, health_check, instance, manager};

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
fn rollback_after_failed_health_check_drains_new_version() {
    let mut rollout = Rollout::start().unwrap();
    rollout.managers(&["m1-v1"]).unwrap();
    rollout.workspace.apply().unwrap().succeeded();

    // GitLab rejects the token of the new version, so it never becomes healthy.
    rollout.lab.queue().refuse_token("glrt-m1-v2");
    rollout.set("health", json!({ "update": "6s" })).unwrap();
    rollout.managers(&["m1-v2"]).unwrap();
    rollout.workspace.apply().unwrap().failed();
    assert_eq!(rollout.hosts(), ["m1-v1", "m1-v2"]);

    rollout.set("health", json!({})).unwrap();
    rollout.managers(&["m1-v1"]).unwrap();
    let back = rollout.workspace.apply().unwrap().succeeded();
    assert_order(
        &back.timeline(),
        &[
            "start delete grit_runner_drain.manager[\"m1-v2\"]",
            "complete delete grit_runner_drain.manager[\"m1-v2\"]",
            "start delete lab_instance.manager[\"m1-v2\"]",
        ],
    );
    assert_eq!(rollout.signals("m1-v2"), ["SIGQUIT"]);
    assert_eq!(rollout.runner_was_alive_at_the_end_of("m1-v2"), Some(false));
    assert_eq!(rollout.signals("m1-v1"), Vec::<String>::new());
    assert_eq!(rollout.hosts(), ["m1-v1"]);
}

#[test]
fn two_apply_rollout_keeps_order() {
    let mut rollout = Rollout::start().unwrap();
    rollout.managers(&["m1-v1"]).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    rollout.managers(&["m1-v1", "m1-v2"]).unwrap();
    let first = rollout.workspace.apply().unwrap().succeeded();
    assert!(!first.timeline().iter().any(|line| line.contains("delete")), "{:?}", first.timeline());
    rollout.managers(&["m1-v2"]).unwrap();
    let second = rollout.workspace.apply().unwrap().succeeded();
    assert!(!second.timeline().iter().any(|line| line.contains(" create ")), "{:?}", second.timeline());
    assert_rolled(&rollout, "m1-v1", "m1-v2");
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

#[test]
fn module_per_version_rolls_in_order_with_root_health() {
    let root = |version: &str| {
        format!(
            r#"
module "version" {{
  for_each = {{ "{version}" = true }}
  source   = "./version"
  runner   = each.key
}}
{}"#,
            health_check(
                "all",
                "runner_managers = { for key, version in module.version : key => version.runner_manager }\n  \
                 drains = { for key, version in module.version : key => version.drain }",
                "60s",
                CREATE_FIRST,
            )
        )
    };
    let rollout = Rollout::of(&root(OLD)).unwrap();
    let module = format!(
        r#"
terraform {{
  required_providers {{
    grit = {{ source = "runner-tools/grit" }}
    lab  = {{ source = "runner-tools/lab" }}
  }}
}}
variable "runner" {{ type = string }}
output "runner_manager" {{ value = grit_runner_drain.m.runner_manager }}
output "drain" {{ value = grit_runner_drain.m.id }}
{}{}"#,
        instance("m", "VERSION", CREATE_FIRST)
            .replace("\"VERSION\"", "var.runner")
            .replace("= \"m\"", "= \"m-${var.runner}\""),
        drain("m", CREATE_FIRST),
    );
    rollout.workspace.write("version/main.tf", &module).unwrap();
    rollout.workspace.get().unwrap().succeeded();
    rollout.workspace.apply().unwrap().succeeded();
    rollout.workspace.write("main.tf", &root(NEW)).unwrap();
    rollout.workspace.get().unwrap().succeeded();
    rollout.workspace.apply().unwrap().succeeded();
    assert_rolled(&rollout, &format!("m-{OLD}"), &format!("m-{NEW}"));
}

/// The canary's health check precedes the other instances; the health check over all precedes the drains.
fn canary(version: &str) -> String {
    let keyed = |name: &str, key: &str, more: &str| {
        let each =
            format!("for_each = {{ \"{key}-{version}\" = \"{version}\" }}\n  {more}\n  {CREATE_FIRST}");
        let instance = instance(name, "VERSION", &each)
            .replace("\"VERSION\"", "each.value")
            .replace(&format!("= \"{name}\""), "= each.key");
        let each = format!("for_each = {{ \"{key}-{version}\" = \"{version}\" }}\n  {CREATE_FIRST}");
        let drain = drain(name, &each)
            .replace(&format!("lab_instance.{name}."), &format!("lab_instance.{name}[each.key]."));
        instance + &drain
    };
    let over = |drains: &str| {
        format!(
            "runner_managers = {{ for key, drain in {drains} : key => drain.runner_manager }}\n  \
             drains = {{ for key, drain in {drains} : key => drain.id }}"
        )
    };
    keyed("canary", "canary", "")
        + &health_check(
            "canary",
            &over("grit_runner_drain.canary"),
            "60s",
            &format!("stable_for = \"1s\"\n  {CREATE_FIRST}"),
        )
        + &keyed("rest", "rest", "depends_on = [grit_runner_health.canary]")
        + &health_check(
            "all",
            &over("merge(grit_runner_drain.canary, grit_runner_drain.rest)"),
            "60s",
            CREATE_FIRST,
        )
}

#[test]
fn canary_is_healthy_before_other_managers_are_created() {
    let rollout = Rollout::of(&canary(OLD)).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    rollout.workspace.write("main.tf", &canary(NEW)).unwrap();
    let roll = rollout.workspace.apply().unwrap().succeeded();
    assert_order(
        &roll.timeline(),
        &[
            "complete update grit_runner_health.canary",
            &format!("start create lab_instance.rest[\"rest-{NEW}\"]"),
            "complete update grit_runner_health.all",
            &format!("start delete grit_runner_drain.rest[\"rest-{OLD}\"]"),
        ],
    );
    for name in ["canary", "rest"] {
        assert_rolled(&rollout, &format!("{name}-{OLD}"), &format!("{name}-{NEW}"));
    }

    // A canary that never becomes healthy stops the rollout before the other instances change.
    let third = "19.2.3";
    rollout.lab.queue().refuse_token(&format!("glrt-canary-{third}"));
    rollout
        .workspace
        .write("main.tf", &canary(third).replace("\"60s\", update = \"60s\"", "\"6s\", update = \"6s\""))
        .unwrap();
    rollout.workspace.apply().unwrap().failed();
    assert_eq!(rollout.hosts(), [format!("canary-{NEW}"), format!("rest-{NEW}"), format!("canary-{third}")]);
    assert_eq!(rollout.signals(&format!("canary-{NEW}")), Vec::<String>::new());
}

/// Both colours stay; health check and drain resource exist only for the active one.
fn colours(active: &str) -> String {
    let of = |colour: &str| instance(colour, OLD, CREATE_FIRST);
    let managers = format!(
        "locals {{\n  managers = {{\n  blue = {}\n  green = {}\n  }}\n}}\n",
        manager("lab_instance.blue"),
        manager("lab_instance.green")
    );
    let each = format!("for_each = toset([\"{active}\"])");
    let drain = format!(
        r#"
resource "grit_runner_drain" "active" {{
  {each}
  instance_id    = {{ blue = lab_instance.blue.id, green = lab_instance.green.id }}[each.key]
  runner_manager = local.managers[each.key]
  depends_on     = [grit_runner_health.active]
  {CREATE_FIRST}
}}
"#
    );
    let health = "start_if_stopped = true\n  runner_managers = { (each.key) = local.managers[each.key] }";
    of("blue")
        + &of("green")
        + &managers
        + &health_check("active", &format!("{each}\n  {health}"), "60s", CREATE_FIRST)
        + &drain
}

#[test]
fn blue_green_starts_one_runner_before_draining_other() {
    let rollout = Rollout::of(&colours("blue")).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    for (active, idle) in [("green", "blue"), ("blue", "green")] {
        let from = rollout.lab.events().all().len();
        rollout.workspace.write("main.tf", &colours(active)).unwrap();
        let switched = rollout.workspace.apply().unwrap().succeeded();
        assert_order(
            &switched.timeline(),
            &[
                &format!("complete create grit_runner_health.active[\"{active}\"]"),
                &format!("start delete grit_runner_drain.active[\"{idle}\"]"),
                &format!("complete delete grit_runner_drain.active[\"{idle}\"]"),
            ],
        );
        let drained = rollout.lab.events().all().into_iter().skip(from);
        let drained: Vec<_> =
            drained.filter(|event| is_signal(event, "SIGQUIT")).map(|event| event.subject).collect();
        assert_eq!(drained, [idle]);
        assert!(rollout.host(active).runner_pid().is_some(), "{active} does not run");
        assert_eq!(rollout.host(idle).runner_pid(), None, "{idle} still runs");
    }
    assert_eq!(rollout.hosts().len(), 2);
}
