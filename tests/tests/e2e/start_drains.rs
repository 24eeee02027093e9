//! `start_drains`: the health check starts the drains that its plan ends, all at once, and no other drain.

use grit_testkit::rounds;
use grit_tests::{
    lab::event::{Event, What},
    poll,
    rollout::{PATIENCE, Rollout, is_signal, main_before},
    terraform::Run,
};
use serde_json::{Map, Value as Json, json};

mod interrupted;
mod never_early;
mod plans;

/// More managers than Terraform handles in parallel.
fn managers() -> usize {
    rounds(4, 24)
}

/// Terraform's `-parallelism`.
const AT_A_TIME: usize = 2;

/// The health checks of both versions, on a busy machine.
const HEALTH: &str = "180s";

/// A deployment whose health check starts the drains, with these managers.
fn deployed(managers: &Json) -> Rollout {
    let mut rollout = Rollout::start().unwrap();
    limit_parallelism(&mut rollout);
    rollout.lab.cloud().shape(|_, spec| spec.concurrent = 1);
    rollout.set("health", json!({ "create": HEALTH, "update": HEALTH, "start_drains": true })).unwrap();
    rollout.set("managers", managers.clone()).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    rollout
}

fn limit_parallelism(rollout: &mut Rollout) {
    rollout.workspace.set_env("TF_CLI_ARGS_apply", format!("-no-color -parallelism={AT_A_TIME}"));
}

/// Managers `m01`, `m02`, … of one version, with this text after each name.
fn fleet(count: usize, version: &str, more: &str) -> Json {
    let names = (1..=count).map(|number| (format!("m{number:02}{more}"), version.into()));
    names.collect::<Map<_, _>>().into()
}

/// The keys of the drains that the last update of this health check, or of each of its instances, started.
fn started(rollout: &Rollout, health_check: &str) -> Vec<String> {
    let state = rollout.workspace.state().unwrap();
    let objects = state.at(health_check);
    let keys = objects.iter().filter_map(|object| object.attributes["started_drains"].as_array());
    keys.flatten().map(|key| key.as_str().unwrap().to_owned()).collect()
}

fn drained(rollout: &Rollout, hosts: &[String]) -> usize {
    hosts.iter().filter(|host| !rollout.signals(host).is_empty()).count()
}

/// Applies with `apply` while all runners of `old` have a job, which ends when all of them are draining. Asserts the order.
fn roll(rollout: &Rollout, old: &[String], apply: impl FnOnce(&Rollout) -> Run + Send) {
    let jobs = rollout.hold_jobs(old.len());
    let before = rollout.lab.events().all().len();
    std::thread::scope(|scope| {
        let apply = scope.spawn(|| apply(rollout));
        poll::until("all drains are in progress", PATIENCE * 3, || match drained(rollout, old) {
            all if all == old.len() => Ok(()),
            some => Err(some),
        });
        rollout.lab.queue().release(&jobs);
        apply.join().unwrap().succeeded();
    });
    let tally = rollout.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (old.len(), 0));
    let events = &rollout.lab.events().all()[before..];
    let is_of = |event: &&Event| old.contains(&event.subject);
    let last = |of: fn(&What) -> bool| events.iter().rfind(|event| of(&event.what)).unwrap().seq;
    let first = |of: fn(&Event) -> bool| events.iter().filter(is_of).find(|it| of(it)).unwrap().seq;
    let polling = last(|what| matches!(what, What::RunnerPolling { .. }));
    let (signal, exit) = (
        first(|event| is_signal(event, "SIGQUIT")),
        first(|event| matches!(event.what, What::RunnerExiting { .. })),
    );
    assert!(polling < signal && signal < exit, "{polling} {signal} {exit}:\n{}", rollout.lab.events());
    for host in old {
        assert_eq!(rollout.signals(host), ["SIGQUIT"]);
        assert_eq!(rollout.runner_was_alive_at_the_end_of(host), Some(false));
    }
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

fn applied(rollout: &Rollout) -> Run {
    rollout.workspace.apply().unwrap()
}

/// Applies a saved plan, which shows the drains that the apply starts.
fn applied_from_plan(rollout: &Rollout) -> Run {
    rollout.workspace.plan().unwrap().succeeded();
    let plan = rollout.workspace.show(Some("plan")).unwrap();
    let changes = plan["resource_changes"].as_array().unwrap();
    let health = changes.iter().find(|change| change["type"] == "grit_runner_health").unwrap();
    let planned = health["change"]["after"]["started_drains"].as_array().unwrap();
    assert_eq!(planned.len(), managers(), "{health}");
    rollout.workspace.run(["apply", "-json", "-auto-approve", "plan"]).unwrap()
}

fn names(managers: &Json) -> Vec<String> {
    managers.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn drains_of_versions_as_keys_start_at_once() {
    let old = fleet(managers(), "19.2.0", "-v1");
    let mut rollout = deployed(&old);
    rollout.set("managers", fleet(managers(), "19.2.1", "-v2")).unwrap();
    roll(&rollout, &names(&old), applied);
    assert_eq!(started(&rollout, "grit_runner_health.all"), names(&old));
}

/// A root module with a module for each version, as in `examples/rollouts/module-per-version`.
const ROOT: &str = r#"
variable "versions" {
  type = map(map(string))
}

module "version" {
  source   = "./version"
  for_each = var.versions
  managers = each.value
}

resource "grit_runner_health" "all" {
  runner_managers = merge([for version in module.version : version.runner_managers]...)
  drains          = merge([for version in module.version : version.drains]...)
  start_drains    = true
  timeouts        = { create = "180s", update = "180s" }

  lifecycle {
    create_before_destroy = true
  }
}
"#;

const PROVIDERS: &str = r#"
terraform {
  required_providers {
    grit = { source = "runner-tools/grit" }
    lab  = { source = "runner-tools/lab" }
  }
}

output "runner_managers" {
  value = { for key, drain in grit_runner_drain.manager : key => drain.runner_manager }
}

output "drains" {
  value = { for key, drain in grit_runner_drain.manager : key => drain.id }
}
"#;

#[test]
fn drains_of_module_per_version_start_at_once() {
    let (old, new) = (fleet(managers(), "19.2.0", "-v1"), fleet(managers(), "19.2.1", "-v2"));
    let mut rollout = Rollout::of(ROOT).unwrap();
    limit_parallelism(&mut rollout);
    rollout.lab.cloud().shape(|_, spec| spec.concurrent = 1);
    let module = format!("{PROVIDERS}{}", main_before("grit_runner_health"));
    rollout.workspace.write("version/main.tf", &module).unwrap();
    rollout.workspace.get().unwrap().succeeded();
    rollout.set("versions", json!({ "v1": old })).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    rollout.set("versions", json!({ "v2": new })).unwrap();
    rollout.workspace.get().unwrap().succeeded();
    roll(&rollout, &names(&old), applied_from_plan);
}

#[test]
fn drains_of_stable_keys_start_at_once() {
    let old = fleet(managers(), "19.2.0", "");
    let mut rollout = deployed(&old);
    rollout.set("managers", fleet(managers(), "19.2.1", "")).unwrap();
    roll(&rollout, &names(&old), applied_from_plan);
    assert_eq!(started(&rollout, "grit_runner_health.all"), names(&old));
}
