//! The two rules of `grit_runner_drain`, with the real Terraform: create never fails, and destroy never
//! succeeds without evidence. Invalid values that are known at plan are refused there.

use grit_tests::{
    lab::{Lab, event::What},
    rollout::PATIENCE,
    terraform::{Run, Workspace},
};
use serde_json::{Value as Json, json};

mod health_check;

const HEAD: &str = r#"
terraform {
  required_providers {
    grit = { source = "runner-tools/grit" }
    lab  = { source = "runner-tools/lab" }
  }
}
"#;

/// One instance and its drain resource, replaced together; the drain's address is known only after the create of the instance.
const ROLL: &str = r#"
variable "cloud" { type = string }
variable "key" { type = string }
variable "runner_version" { type = string }
variable "address" { type = string }

provider "lab" { cloud = var.cloud }
provider "grit" { ssh = { private_key_path = var.key } }

resource "lab_instance" "m" {
  name           = "m"
  runner_version = var.runner_version
  lifecycle { create_before_destroy = true }
}

# The address is unknown until the instance exists: `&&` with an unknown operand would not be, from Terraform 1.12 on.
resource "grit_runner_drain" "m" {
  instance_id = lab_instance.m.id
  runner_manager = {
    instance_name   = lab_instance.m.instance_name
    address         = var.address == "right" ? lab_instance.m.address : jsondecode(join("", [var.address, substr(lab_instance.m.id, 0, 0)]))
    wrapper_address = lab_instance.m.wrapper_address
    username        = lab_instance.m.username
    host_key        = lab_instance.m.host_key
  }
  retry    = { attempts = 2 }
  timeouts = { delete = "60s" }
  lifecycle { create_before_destroy = true }
}
"#;

struct Roll {
    workspace: Workspace,
    lab: Lab,
}

impl Roll {
    /// Version 1 runs, and its drain resource is valid. `more` follows the drain resource.
    fn start(more: &str) -> Self {
        let lab = Lab::start().unwrap();
        let workspace = Workspace::new(&["grit", "lab"]).unwrap();
        workspace.write("main.tf", &format!("{HEAD}{ROLL}{more}")).unwrap();
        let roll = Self { workspace, lab };
        roll.set("19.2.1", "\"right\"");
        roll.workspace.apply().unwrap().succeeded();
        roll.wait_for_runner("m");
        roll
    }

    fn wait_for_runner(&self, host: &str) {
        self.lab.events().wait_for(&format!("{host} runs"), PATIENCE, |event| {
            event.subject == host && matches!(event.what, What::RunnerPolling { .. })
        });
    }

    /// `address` is an expression without references: `"right"`, or the JSON of a wrong value.
    fn set(&self, version: &str, address: &str) {
        let address: Json = serde_json::from_str(address).unwrap();
        let variables = json!({
            "cloud": self.lab.cloud().endpoint(),
            "key": self.lab.client_key().path,
            "runner_version": version,
            "address": address,
        });
        self.workspace.write("terraform.tfvars.json", &variables.to_string()).unwrap();
    }

    fn apply(&self, saved_plan: bool) -> Run {
        if saved_plan {
            self.workspace.plan().unwrap().succeeded();
            self.workspace.run(["apply", "-json", "plan"]).unwrap()
        } else {
            self.workspace.apply().unwrap()
        }
    }

    /// Whether the runner of each instance was running when its destruction was requested, by version.
    fn terminated(&self) -> Vec<(String, bool)> {
        let events = self.lab.events().all();
        let terminated = events.iter().filter_map(|event| match event.what {
            What::InstanceTerminating { runner_alive, .. } => Some((event.subject.clone(), runner_alive)),
            _ => None,
        });
        terminated.collect()
    }
}

/// A bad address that becomes known during apply: the drain resource is stored, and version 1 is drained before its instance is destroyed.
fn a_bad_address_of_the_apply(bad: &str, summary: &str, saved_plan: bool) {
    let roll = Roll::start("");
    roll.set("19.2.2", &Json::from(bad).to_string());
    let applied = roll.apply(saved_plan).succeeded();
    let warnings = applied.warnings();
    assert!(
        warnings.iter().any(|(title, detail)| *title == summary
            && detail.contains("runner_manager.address")
            && detail.contains("Until then, this resource cannot drain its runner manager")),
        "{warnings:#?}"
    );
    assert_eq!(roll.terminated(), [("m".to_owned(), false)], "{}", roll.lab.events());
    // The second instance of that name has a number appended.
    let second = roll.lab.cloud().instances().into_iter().map(|(instance, _)| instance).next().unwrap();
    roll.wait_for_runner(&second.instance_name);

    // The value is known now, so the next plan refuses it, and the destroy fails.
    let refused = roll.workspace.plan().unwrap().failed();
    let titles: Vec<_> = refused.errors().into_iter().map(|(title, _)| title.to_owned()).collect();
    assert_eq!(titles, [summary]);
    let destroyed =
        roll.workspace.run(["destroy", "-json", "-auto-approve", "-refresh=false"]).unwrap().failed();
    let errors = destroyed.errors();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert_eq!(errors[0].0, "Drain resource has an invalid runner manager");
    let command = format!("GRIT_ASSUME_TERMINATED={} terraform COMMAND", second.id);
    for part in ["runner_manager.address", &command, "Code: invalid_config"] {
        assert!(errors[0].1.contains(part), "{part}: {}", errors[0].1);
    }
    assert_eq!(roll.lab.cloud().instances().len(), 1, "the instance is kept");

    // After the fix the drain resource is updated in place, and drains its runner.
    roll.set("19.2.2", "\"right\"");
    let fixed = roll.workspace.apply().unwrap().succeeded();
    assert_eq!(fixed.planned(), ["update grit_runner_drain.m"]);
    assert_eq!(roll.workspace.plan().unwrap().succeeded().planned(), [""; 0]);
    roll.workspace.destroy().unwrap().succeeded();
    let wanted = [("m".to_owned(), false), (second.instance_name, false)];
    assert_eq!(roll.terminated(), wanted, "{}", roll.lab.events());
}

#[test]
fn empty_address_known_at_apply_is_stored_with_warning() {
    a_bad_address_of_the_apply("\"\"", "Invalid address", false);
}

#[test]
fn null_address_known_at_saved_plan_apply_is_stored() {
    a_bad_address_of_the_apply("null", "Invalid address", true);
}

/// A drain resource for a host that does not exist.
fn drain(instance_id: &str, manager: &str, more: &str) -> String {
    format!(
        "{HEAD}resource \"grit_runner_drain\" \"a\" {{\n  instance_id = {instance_id}\n  runner_manager = {manager}\n  {more}\n}}\n"
    )
}

fn manager(address: &str) -> String {
    format!("{{ instance_name = \"m1\", address = {address}, wrapper_address = \"unix:///run/w.sock\" }}")
}

fn workspace(text: &str) -> Workspace {
    let workspace = Workspace::new(&["grit", "lab"]).unwrap();
    workspace.write("main.tf", text).unwrap();
    workspace
}

/// The errors of a plan, each with its title and the attributes that its text names.
#[track_caller]
fn plan_errors(text: &str) -> Vec<(String, String)> {
    let plan = workspace(text).plan().unwrap().failed();
    let errors = plan.errors().into_iter();
    errors.map(|(title, detail)| (title.to_owned(), detail.to_owned())).collect()
}

#[test]
fn invalid_variable_values_are_refused_at_plan() {
    // `instance_id` is unknown, as for a new instance, so the request belongs to a plan.
    let unknown = "resource \"terraform_data\" \"i\" {}\nvariable \"address\" { default = \"\" }\n";
    let text = format!("{}{unknown}", drain("terraform_data.i.id", &manager("var.address"), ""));
    let errors = plan_errors(&text);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert_eq!(errors[0].0, "Invalid address");

    // All values are known, and a health check has the same manager: the health check is refused.
    let health_check = "resource \"grit_runner_health\" \"all\" {\n  runner_managers = { m1 = grit_runner_drain.a.runner_manager }\n}\n";
    let variable = "variable \"address\" { default = \"\" }\n";
    let text = format!("{}{variable}{health_check}", drain("\"i-1\"", &manager("var.address"), ""));
    let errors = plan_errors(&text);
    assert!(errors.iter().any(|(title, _)| title == "Invalid address"), "{errors:#?}");
}

#[test]
fn null_instance_id_known_at_apply_is_stored_and_filled() {
    let unknown = |value: &str| {
        format!(
            "resource \"terraform_data\" \"i\" {{ input = \"{value}\" }}\n{}",
            drain(
                "terraform_data.i.output == \"i-1\" ? \"i-1\" : null",
                &format!("terraform_data.i.output == \"i-1\" ? {} : null", manager("\"127.0.0.1:1\"")),
                ""
            )
        )
    };
    let workspace = workspace(&unknown("later"));
    let applied = workspace.apply().unwrap().succeeded();
    let warnings = applied.warnings();
    for attribute in [
        "`instance_id` is required and must not be null",
        "`runner_manager` is required and must not be null",
    ] {
        assert!(warnings.iter().any(|(_, detail)| detail.contains(attribute)), "{warnings:#?}");
    }

    // Without a target there is no evidence. The command has the drain's identifier.
    workspace.write("main.tf", HEAD).unwrap();
    let failed = workspace.apply().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].1.contains("`runner_manager` in the state is invalid: it has no value"), "{errors:#?}");
    let id = workspace.state().unwrap().objects[0].attributes["id"].as_str().unwrap().to_owned();
    assert!(errors[0].1.contains(&format!("GRIT_ASSUME_TERMINATED='{id}' ")), "{id}: {errors:#?}");

    // Recovery: the value is known now, and is stored without a drain.
    workspace.write("main.tf", &unknown("i-1")).unwrap();
    let fixed = workspace.apply().unwrap().succeeded();
    assert_eq!(
        fixed.timeline().into_iter().filter(|line| line.contains("drain")).collect::<Vec<_>>(),
        ["start update grit_runner_drain.a", "complete update grit_runner_drain.a"]
    );
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), [""; 0]);
}

#[test]
fn drain_import_is_refused_with_next_step() {
    let workspace = workspace(&drain("\"i-1\"", &manager("\"127.0.0.1:1\""), ""));
    let run = workspace.run(["import", "grit_runner_drain.a", "i-1"]).unwrap().failed();
    for part in ["grit_runner_drain cannot be imported", "Add the resource block and apply", "Code: refused"]
    {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
}

/// Terraform does this before the provider receives the value. The documentation states it; this test detects a change.
#[test]
fn terraform_drops_unknown_nested_attributes() {
    let text = drain("\"i-1\"", &manager("\"127.0.0.1:1\""), "timeouts = { destroy = \"6h\" }");
    let workspace = workspace(&text);
    workspace.plan().unwrap().succeeded();
    let plan = workspace.show(Some("plan")).unwrap();
    let planned = &plan["resource_changes"][0]["change"]["after"]["timeouts"];
    assert_eq!(planned, &json!({ "delete": null }));
}
