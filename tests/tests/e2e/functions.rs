//! Functions of the provider, called by Terraform.

use grit_tests::terraform::{Run, Workspace};
use serde_json::{Value as Json, json};

const HEAD: &str = "terraform {\n  required_providers {\n    grit = {\n      source = \"runner-tools/grit\"\n    }\n  }\n}\n";
/// A stand-in for a module of GRIT: an object with its outputs. The public address is known after apply.
const MODULE: &str = r#"
resource "terraform_data" "instance" {
  input = "192.0.2.7"
}

locals {
  module = {
    ec2_instance_name              = "m1"
    ec2_instance_id                = "i-0123"
    ec2_public_ip                  = terraform_data.instance.output
    ec2_private_ip                 = "10.0.0.7"
    ec2_runner_wrapper_socket_path = "unix:///run/w.sock"
    ec2_ssh_key_openssh_pem        = ""
  }
}
"#;

fn workspace(configuration: &str) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf", &format!("{HEAD}{configuration}")).unwrap();
    workspace
}

fn output(workspace: &Workspace) -> Json {
    workspace.show(None).unwrap()["values"]["outputs"]["result"]["value"].clone()
}

/// Everything that a failed plan printed about its errors, on one line each.
fn errors(run: &Run) -> String {
    run.errors().iter().map(|(summary, detail)| format!("{summary}: {detail}\n")).collect()
}

#[test]
fn managers_from_grit_has_known_keys_at_plan() {
    let configuration = format!(
        "{MODULE}\nlocals {{\n  managers = provider::grit::managers_from_grit(local.module, {{ blue = local.module }})\n}}\n\
         resource \"grit_runner_drain\" \"all\" {{\n  for_each       = local.managers\n  instance_id    = \"${{each.key}}-${{each.value.instance_id}}\"\n  \
         runner_manager = each.value\n}}\noutput \"result\" {{\n  value = local.managers\n}}\n"
    );
    // The plan guard would refuse two drain resources of one manager.
    let workspace = workspace(&configuration).env("GRIT_PLAN_GUARD", "off");
    let plan = workspace.plan().unwrap().succeeded();
    assert_eq!(
        plan.planned(),
        [
            "create grit_runner_drain.all[\"blue\"]",
            "create grit_runner_drain.all[\"m1\"]",
            "create terraform_data.instance"
        ]
    );
    workspace.run(["apply", "-json", "plan"]).unwrap().succeeded();
    let manager = json!({
        "instance_name": "m1", "address": "192.0.2.7", "wrapper_address": "unix:///run/w.sock", "username": null,
        "ssh_key_pem": null, "instance_id": "i-0123", "host_key": null,
    });
    assert_eq!(output(&workspace), json!({ "blue": manager, "m1": manager }));
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), [""; 0]);
}

#[test]
fn validate_managers_returns_typed_map() {
    let configuration = "output \"result\" {\n  value = [\n    provider::grit::validate_managers({ a = { address = \"h\", wrapper_address = \"h:1\" }, b = { address = \"h2\", wrapper_address = \"h:1\", username = \"u\" } }),\n    \
        provider::grit::validate_managers({}),\n  ]\n}\n";
    let workspace = workspace(configuration);
    workspace.apply().unwrap().succeeded();
    let result = output(&workspace);
    assert_eq!((&result[0]["a"]["instance_name"], &result[0]["b"]["username"]), (&json!("a"), &json!("u")));
    assert_eq!(result[1], json!({}));
}

#[test]
fn function_errors_name_parameter_and_problem() {
    let workspace = workspace("");
    let mut all = String::new();
    for call in [
        "validate_managers(null)",
        "validate_managers([])",
        "validate_managers({ a = { address = \"h:99999\", wrapper_address = \"h:1\" }, b = { address = \"h\" } })",
        "managers_from_grit({ url = \"https://gitlab.example.com\" })",
        "managers_from_grit(null)",
    ] {
        let text = format!("{HEAD}output \"result\" {{\n  value = provider::grit::{call}\n}}\n");
        workspace.write("main.tf", &text).unwrap();
        let run = workspace.plan().unwrap().failed();
        all += &format!("{call}\n{}----\n", errors(&run));
    }
    for expected in [
        "\"h:99999\" is not a valid port",
        "argument must not be null",
        "`runner_managers` is a list; it must be a map of objects.",
        "\n- `runner_managers[\"a\"].address`: ",
        "\n- `runner_managers[\"b\"].wrapper_address` is required",
        "Code: invalid_config",
    ] {
        assert!(all.contains(expected), "{expected}:\n{all}");
    }
}

#[test]
fn unknown_argument_gives_unknown_result() {
    let configuration = "resource \"terraform_data\" \"late\" {\n  input = \"h:2200\"\n}\n\
        output \"result\" {\n  value = \
        provider::grit::validate_managers({ a = { address = terraform_data.late.output, wrapper_address = \"h:1\" } }).a.address\n}\n";
    let workspace = workspace(configuration);
    workspace.plan().unwrap().succeeded();
    workspace.apply().unwrap().succeeded();
    assert_eq!(output(&workspace), json!("h:2200"));
}

#[test]
fn provider_with_functions_works_on_every_core() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let configuration =
        format!("{HEAD}resource \"grit_runner_health\" \"none\" {{\n  runner_managers = {{}}\n}}\n");
    workspace.write("main.tf", &configuration).unwrap();
    workspace.apply().unwrap().succeeded();
    workspace.destroy().unwrap().succeeded();
}
