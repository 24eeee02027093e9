//! `data "grit_deployment"`: the runner managers of a real state, from each source.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use grit_tests::{
    poll,
    rollout::PATIENCE,
    terraform::{Run, Workspace, core, terraform},
};
use serde_json::{Value as Json, json};

const HEAD: &str = "terraform {\n  required_providers {\n    grit = {\n      source = \"runner-tools/grit\"\n    }\n  }\n}\n";
const SECRET: &str = "-----BEGIN SECRET-----";
/// The directory for Terraform's own files unless `TF_DATA_DIR` is set, as for the program of the data source.
const DATA: &str = ".terraform";
const OLD: &str = r#"
output "grit_runner_managers" {
  sensitive = true
  value = {
    a = {
      address         = "10.0.0.7:2222"
      wrapper_address = "unix:///run/w.sock"
      ssh_key_pem     = "-----BEGIN SECRET-----"
    }
    b = {
      instance_name   = "m-b"
      address         = "10.0.0.8"
      wrapper_address = "tcp://localhost:7777"
      instance_id     = "i-0123"
    }
  }
}

output "other" {
  value = 1
}
"#;

/// A deployment version that was applied, in its own directory, and a directory of another one.
struct Versions {
    old: Workspace,
    new: Workspace,
}

impl Versions {
    fn new() -> Self {
        let old = Workspace::new(&[]).unwrap();
        old.write("main.tf", OLD).unwrap();
        old.apply().unwrap().succeeded();
        Self { old, new: Workspace::new(&["grit"]).unwrap() }
    }

    fn write(&self, configuration: &str) {
        let old = self.old.root().display().to_string();
        let program = terraform().unwrap().display().to_string();
        let text = configuration.replace("OLD", &old).replace("PROGRAM", &program);
        self.new.write("main.tf", &format!("{HEAD}{text}")).unwrap();
    }
}

fn outputs(workspace: &Workspace) -> Json {
    workspace.show(None).unwrap()["values"]["outputs"].clone()
}

#[track_caller]
fn only_error(run: &Run) -> String {
    let errors = run.errors();
    let [(summary, detail)] = errors.as_slice() else { panic!("not one error: {errors:?}") };
    format!("{summary}: {detail}")
}

#[test]
fn every_source_gives_the_same_map() {
    let versions = Versions::new();
    let outputs_of_old = versions.old.run(["output", "-json"]).unwrap().succeeded().stdout;
    fs::write(versions.old.root().join("output.json"), outputs_of_old).unwrap();
    versions.write(
        r#"
data "grit_deployment" "file" {
  state_path = "OLD/terraform.tfstate"
}

data "grit_deployment" "output" {
  state_path = "OLD/output.json"
}

data "grit_deployment" "directory" {
  directory      = "OLD"
  terraform_path = "PROGRAM"
}

output "all" {
  sensitive = true
  value = [
    for deployment in [data.grit_deployment.file, data.grit_deployment.output, data.grit_deployment.directory] :
    deployment.runner_managers
  ]
}
"#,
    );
    versions.new.apply().unwrap().succeeded();
    let all = outputs(&versions.new)["all"]["value"].clone();
    let wanted = json!({
        "a": { "instance_name": "a", "address": "10.0.0.7:2222", "wrapper_address": "unix:///run/w.sock", "username": null,
            "ssh_key_pem": SECRET, "instance_id": null, "host_key": null },
        "b": { "instance_name": "m-b", "address": "10.0.0.8", "wrapper_address": "tcp://localhost:7777", "username": null,
            "ssh_key_pem": null, "instance_id": "i-0123", "host_key": null },
    });
    assert_eq!(all, json!([wanted, wanted, wanted]));
    assert_eq!(versions.new.plan().unwrap().succeeded().planned(), [""; 0]);
    // The read changed nothing in the other directory.
    let mut files: Vec<_> =
        fs::read_dir(versions.old.root()).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["main.tf", "output.json", "terraform.tfstate"]);
}

#[test]
fn map_is_accepted_by_resources_and_only_the_key_is_sensitive() {
    let versions = Versions::new();
    let configuration = r#"
data "grit_deployment" "old" {
  state_path = "OLD/terraform.tfstate"
}

resource "grit_runner_drain" "old" {
  for_each       = data.grit_deployment.old.runner_managers
  instance_id    = "i-${each.key}"
  runner_manager = each.value
}

data "grit_runner_status" "old" {
  runner_managers = { for key, drain in grit_runner_drain.old : key => drain.runner_manager }
}

output "addresses" {
  value = { for key, manager in data.grit_deployment.old.runner_managers : key => manager.address }
}
"#;
    versions.write(configuration);
    let plan = versions.new.run(["plan", "-out=plan"]).unwrap().succeeded();
    assert!(plan.stdout.contains("(sensitive value)") && !plan.stdout.contains(SECRET), "{}", plan.stdout);
    let planned = versions.new.plan().unwrap().succeeded().planned();
    assert_eq!(
        planned,
        [
            "create grit_runner_drain.old[\"a\"]",
            "create grit_runner_drain.old[\"b\"]",
            "read data.grit_runner_status.old"
        ]
    );

    versions.write(&format!(
        "{configuration}\noutput \"key\" {{\n  value = data.grit_deployment.old.runner_managers.a.ssh_key_pem\n}}\n"
    ));
    let error = only_error(&versions.new.plan().unwrap().failed());
    assert!(error.starts_with("Output refers to sensitive values"), "{error}");
}

#[test]
fn unknown_source_is_read_in_apply() {
    let versions = Versions::new();
    versions.write(
        r#"
resource "terraform_data" "late" {
  input = "OLD/terraform.tfstate"
}

data "grit_deployment" "old" {
  state_path = terraform_data.late.output
}

output "keys" {
  value = keys(data.grit_deployment.old.runner_managers)
}
"#,
    );
    versions.new.plan().unwrap().succeeded();
    versions.new.apply().unwrap().succeeded();
    assert_eq!(outputs(&versions.new)["keys"]["value"], json!(["a", "b"]));
}

#[test]
fn workspace_is_that_of_the_variable_or_of_the_directory() {
    let mut versions = Versions::new();
    versions.new.set_env("TF_CLI_ARGS_output", "-no-such-flag");
    versions.old.set_env("TF_DATA_DIR", DATA);
    versions.old.run(["workspace", "new", "other"]).unwrap().succeeded();
    let output = OLD.replace("10.0.0.8", "10.0.0.9");
    versions.old.write("main.tf", &output).unwrap();
    versions.old.apply().unwrap().succeeded();
    versions.write(
        r#"
data "grit_deployment" "selected" {
  directory      = "OLD"
  terraform_path = "PROGRAM"
}

output "address" {
  value = data.grit_deployment.selected.runner_managers.b.address
}
"#,
    );
    for (selected, address) in [("other", "10.0.0.9"), ("default", "10.0.0.8")] {
        versions.old.run(["workspace", "select", selected]).unwrap().succeeded();
        versions.new.apply().unwrap().succeeded();
        assert_eq!(outputs(&versions.new)["address"]["value"], address);
    }
    // Also the workspace "default" has a state: the runner managers of another workspace than the one of the variable must not be returned.
    versions.new.set_env("TF_WORKSPACE", "other");
    versions.new.apply().unwrap().succeeded();
    assert_eq!(outputs(&versions.new)["address"]["value"], "10.0.0.9");
}

#[test]
fn destroyed_deployment_is_an_error() {
    let versions = Versions::new();
    versions.old.destroy().unwrap().succeeded();
    versions.write(
        "data \"grit_deployment\" \"old\" {\n  directory      = \"OLD\"\n  terraform_path = \"PROGRAM\"\n}\n\
         output \"managers\" {\n  value = data.grit_deployment.old.runner_managers\n}\n",
    );
    let error = only_error(&versions.new.plan().unwrap().failed());
    assert!(error.contains("it has no outputs, so `grit_runner_managers` is missing."), "{error}");
    assert!(error.ends_with("Code: invalid_config"), "{error}");
}

#[test]
fn uninitialized_directory_is_an_error() {
    let mut versions = Versions::new();
    versions.old.set_env("TF_DATA_DIR", DATA);
    let backend = "terraform {\n  backend \"local\" {\n    path = \"other.tfstate\"\n  }\n}\n";
    versions.old.write("backend.tf", backend).unwrap();
    let state = versions.old.root();
    fs::rename(state.join("terraform.tfstate"), state.join("other.tfstate")).unwrap();
    versions.write(
        "data \"grit_deployment\" \"old\" {\n  directory      = \"OLD\"\n  terraform_path = \"PROGRAM\"\n}\n\
         output \"keys\" {\n  value = keys(data.grit_deployment.old.runner_managers)\n}\n",
    );
    let error = only_error(&versions.new.plan().unwrap().failed());
    assert!(
        error.contains("output` failed (exit status 1)") && error.contains("run `terraform init` there"),
        "{error}"
    );
    assert!(!error.contains('│'), "{error}");
    versions.old.run(["init"]).unwrap().succeeded();
    versions.new.apply().unwrap().succeeded();
    assert_eq!(outputs(&versions.new)["keys"]["value"], json!(["a", "b"]));
}

#[test]
fn invalid_output_error_names_entry_and_attribute() {
    let versions = Versions::new();
    let broken =
        OLD.replace("\"10.0.0.7:2222\"", "\"10.0.0.7:99999\"").replace("address         = \"10.0.0.8\"", "");
    versions.old.write("main.tf", &broken).unwrap();
    versions.old.apply().unwrap().succeeded();
    versions.write("data \"grit_deployment\" \"old\" {\n  state_path = \"OLD/terraform.tfstate\"\n}\n");
    let plan = versions.new.plan().unwrap().failed();
    let errors: Vec<_> = plan.errors().into_iter().map(|(_, detail)| detail).collect();
    assert!(
        errors.iter().any(|it| it.contains("`grit_runner_managers[\"a\"].address`: \"99999\"")),
        "{errors:?}"
    );
    assert!(
        errors.iter().any(|it| it.contains("`grit_runner_managers[\"b\"].address` is required")),
        "{errors:?}"
    );
    assert!(!plan.stdout.contains(SECRET));
}

#[test]
fn ctrl_c_ends_the_program_and_the_plan() {
    let versions = Versions::new();
    let script = versions.new.root().join("program");
    fs::write(&script, "#!/bin/sh\ntrap '' TERM INT\necho $$ > pid\nsleep 600\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    versions.write("data \"grit_deployment\" \"old\" {\n  directory      = \"OLD\"\n  terraform_path = \"./program\"\n}\n");
    let mut session = versions.new.start(["plan"]).unwrap();
    let pid = poll::until("the program runs", PATIENCE, || {
        let pid = fs::read_to_string(versions.old.root().join("pid")).unwrap_or_default();
        if pid.ends_with('\n') { Ok(pid.trim().to_owned()) } else { Err(session.output()) }
    });
    session.ctrl_c().unwrap();
    let ended = session.wait(PATIENCE);
    assert!(ended.waited < Duration::from_secs(30), "{:?}", ended.waited);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("Code: interrupted"), "{}", ended.output);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[test]
fn first_program_on_path_is_the_default() {
    let mut versions = Versions::new();
    let folder = versions.new.path().join("bin");
    fs::create_dir(&folder).unwrap();
    let name = if core().registry().contains("opentofu") { "tofu" } else { "terraform" };
    std::os::unix::fs::symlink(terraform().unwrap(), folder.join(name)).unwrap();
    let path = std::env::var("PATH").unwrap();
    versions.new.set_env("PATH", format!("{}:{path}", folder.display()));
    versions.write("data \"grit_deployment\" \"old\" {\n  directory = \"OLD\"\n}\noutput \"count\" {\n  value = length(data.grit_deployment.old.runner_managers)\n}\n");
    versions.new.apply().unwrap().succeeded();
    assert_eq!(outputs(&versions.new)["count"]["value"], 2);
}
