//! Random plans: the planned `started_drains` are exactly the drains that the plan ends and that leave their health check. No host is needed.

use std::{collections::BTreeSet, fs};

use grit_testkit::rounds;
use grit_tests::terraform::{Run, Workspace, core};
use serde_json::{Map, Value as Json, json};

const CONFIGURATION: &str = r#"
terraform {
  required_providers {
    grit = { source = "runner-tools/grit" }
  }
}

provider "grit" {
  ssh = { username = "deploy", agent = { socket = "/nonexistent" } }
}

variable "managers" {
  type = map(object({ instance = optional(string), address = string, check = string }))
}

variable "start_drains" {
  type = map(bool)
}

variable "has_managers" {
  type = bool
}

resource "terraform_data" "new" {
  for_each = { for key, manager in var.managers : key => manager if manager.instance == null }
}

resource "grit_runner_drain" "m" {
  for_each    = var.managers
  instance_id = each.value.instance == null ? terraform_data.new[each.key].id : each.value.instance
  runner_manager = {
    instance_name   = each.key
    address         = each.value.address
    wrapper_address = "unix:///run/wrapper.sock"
  }
  lifecycle {
    create_before_destroy = true
  }
}

resource "grit_runner_health" "check" {
  for_each        = var.start_drains
  runner_managers = { for key, drain in grit_runner_drain.m : key => drain.runner_manager if var.has_managers && var.managers[key].check == each.key }
  drains          = { for key, drain in grit_runner_drain.m : key => drain.id if var.managers[key].check == each.key }
  start_drains    = each.value
  lifecycle {
    create_before_destroy = true
  }
}
"#;

/// A linear congruential generator (Knuth's constants): the same plans in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap()]
    }
}

const KEYS: [&str; 5] = ["m1", "m2", "m3", "m4", "m5"];
const CHECKS: [&str; 2] = ["a", "b"];

/// The values of `var.managers` before a plan.
fn stored() -> Json {
    let managers = KEYS.iter().enumerate().map(|(number, key)| {
        let check = CHECKS[usize::from(number == 4)];
        let address = format!("127.0.0.{}:1", number + 1);
        ((*key).to_owned(), json!({ "instance": format!("i-{key}"), "address": address, "check": check }))
    });
    managers.collect::<Map<_, _>>().into()
}

/// The values of a plan: each manager is kept, moved to another health check or to none, removed, or replaced.
fn next(random: &mut Random) -> Json {
    let mut managers = stored();
    for (number, key) in KEYS.iter().enumerate() {
        match random.below(6) {
            0 => drop(managers.as_object_mut().unwrap().remove(*key)),
            fate @ (1 | 2) => {
                let instance = if fate == 1 { Json::Null } else { format!("j-{key}").into() };
                managers[key]["instance"] = instance;
                managers[key]["address"] = format!("127.0.1.{}:1", number + 1).into();
            }
            3 => managers[key]["check"] = random.one_of(&["a", "b", "none"]).into(),
            _ => {}
        }
    }
    managers
}

fn write(workspace: &Workspace, managers: &Json, start_drains: &Json, has_managers: bool) {
    let values = json!({ "managers": managers, "start_drains": start_drains, "has_managers": has_managers });
    workspace.write("terraform.tfvars.json", &values.to_string()).unwrap();
}

/// The state after an apply with these runner managers, as if they had been healthy. `old`: ids of drains that an earlier plan ended, whose apply
/// failed before the health check.
fn state(applied: &Json, old: &BTreeSet<String>) -> Json {
    let mut state = applied.clone();
    let resources = state["resources"].as_array_mut().unwrap();
    let of_type =
        |resources: &[Json], name: &str| resources.iter().position(|it| it["type"] == name).unwrap();
    let drains = resources[of_type(resources, "grit_runner_drain")]["instances"].clone();
    let drains: Map<_, _> = drains
        .as_array()
        .unwrap()
        .iter()
        .map(|drain| (drain["index_key"].as_str().unwrap().to_owned(), drain["attributes"].clone()))
        .collect();
    let health = of_type(resources, "grit_runner_health");
    for check in resources[health]["instances"].as_array_mut().unwrap() {
        let own = check["attributes"]["drains"].as_object().unwrap().clone();
        let managers = own.keys().map(|key| (key.clone(), drains[key]["runner_manager"].clone()));
        check["attributes"]["runner_managers"] = managers.collect::<Map<_, _>>().into();
        let kept = own.iter().filter(|(key, _)| old.contains(*key));
        let kept: Map<_, _> = kept.map(|(_, id)| (id.as_str().unwrap().to_owned(), json!({}))).collect();
        check["private"] = base64(json!({ "kept": kept }).to_string().as_bytes()).into();
    }
    state
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |chunk: &[u8]| {
        let bits =
            chunk.iter().chain([&0, &0]).take(3).fold(0usize, |bits, byte| bits << 8 | usize::from(*byte));
        let digit = |place: usize| char::from(DIGITS[bits >> (18 - 6 * place) & 63]);
        (0..4).map(|place| if place <= chunk.len() { digit(place) } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

/// The text values of a map or list.
fn texts(json: &Json) -> BTreeSet<String> {
    let values = json.as_object().into_iter().flat_map(Map::values);
    let values = values.chain(json.as_array().into_iter().flatten());
    values.filter_map(|value| Some(value.as_str()?.to_owned())).collect()
}

/// The drains that a plan may start and those that it starts, by the name of the health check.
fn expected_and_planned(plan: &Json) -> Vec<(String, BTreeSet<String>, BTreeSet<String>)> {
    let changes = plan["resource_changes"].as_array().unwrap();
    let of_type = |name: &'static str| changes.iter().filter(move |change| change["type"] == name);
    let ends = |change: &&Json| texts(&change["change"]["actions"]).contains("delete");
    let ended: BTreeSet<_> = of_type("grit_runner_drain")
        .filter(ends)
        .map(|drain| drain["change"]["before"]["id"].as_str().unwrap().to_owned())
        .collect();
    of_type("grit_runner_health")
        .map(|check| {
            let (before, after) = (&check["change"]["before"], &check["change"]["after"]);
            let stays = texts(&after["drains"]);
            // A map with unknown values has its known values in `after`, and the others in `after_unknown`.
            let unknown = check["change"]["after_unknown"]["drains"].as_object();
            let is_empty = stays.is_empty() && unknown.is_none_or(Map::is_empty);
            let starts = after["start_drains"] == true && !is_empty;
            let own = before["drains"].as_object().unwrap();
            let may_start = own.iter().filter(|(_, id)| {
                let id = id.as_str().unwrap();
                starts && ended.contains(id) && !stays.contains(id)
            });
            let may_start = may_start.map(|(key, _)| key.clone()).collect();
            (check["index"].as_str().unwrap().to_owned(), may_start, texts(&after["started_drains"]))
        })
        .collect()
}

#[test]
fn random_plans_start_exactly_the_drains_that_they_end() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", CONFIGURATION).unwrap();
    write(&workspace, &stored(), &json!({ "a": true, "b": true }), false);
    workspace.apply().unwrap().succeeded();
    let path = workspace.root().join("terraform.tfstate");
    let applied: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut random = Random(31);
    let (mut started, mut refused) = (0, 0);
    for round in 0..rounds(24, 400) {
        let old = KEYS.iter().filter(|_| random.below(3) == 0).map(|key| (*key).to_owned()).collect();
        fs::write(&path, state(&applied, &old).to_string()).unwrap();
        let start_drains = json!({ "a": random.below(5) > 0, "b": random.below(5) > 0 });
        let managers = next(&mut random);
        write(&workspace, &managers, &start_drains, true);
        let refresh = random.below(3) > 0;
        let case = format!("round {round}: refresh {refresh}, {start_drains}, old {old:?}, {managers}");
        let command = ["plan", "-json", "-out=plan", &format!("-refresh={refresh}")];
        let run = workspace.run(command).unwrap();
        if run.code != Some(0) {
            refused += 1;
            assert_refused_for_old_list(&run, refresh, &case);
            continue;
        }
        for (check, may_start, planned) in expected_and_planned(&workspace.show(Some("plan")).unwrap()) {
            let expected =
                if refresh || core().stores_planned_private() { may_start } else { BTreeSet::new() };
            assert_eq!(planned, expected, "{check} in {case}");
            started += planned.len();
        }
    }
    // A core that stores the data of a plan needs no list of an earlier one.
    let may_refuse = !core().stores_planned_private();
    assert!(started > 0 && (refused > 0) == may_refuse, "{started} drains, {refused} refused plans");
}

/// Only a plan without a refresh can have an old list.
#[track_caller]
fn assert_refused_for_old_list(run: &Run, refresh: bool, case: &str) {
    assert!(!refresh, "{case}: {}", run.stdout);
    for (title, _) in run.errors() {
        assert_eq!(title, "Plan with `start_drains` needs a refresh", "{case}");
    }
}
