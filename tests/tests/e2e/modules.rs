//! The modules in `examples/modules/`: their tests and examples, and a rollout with GRIT's modules.
//!
//! The providers of the clouds are stand-ins with schemas only (`grit_tests::lab_provider::clouds`).

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use grit_testkit::page;
use grit_tests::{
    rollout::{Rollout, assert_order},
    sshd::username,
    terraform::{Product, Run, Workspace, built, core},
};
use serde_json::json;

use super::example::repository;

const MODULES: [&str; 6] =
    ["cloud-init", "grit-managers", "prometheus", "rollout", "runner-manager-aws", "runner-manager-google"];

/// The providers that the modules require, with the program that serves each.
const PROVIDERS: [(&str, &str, &str); 6] = [
    ("hashicorp/aws", "6.0.0", "terraform-provider-clouds"),
    ("hashicorp/external", "2.3.0", "terraform-provider-clouds"),
    ("hashicorp/local", "2.5.0", "terraform-provider-clouds"),
    ("hashicorp/google", "6.0.0", "terraform-provider-clouds"),
    ("hashicorp/tls", "4.0.0", "terraform-provider-clouds"),
    ("runner-tools/grit", "0.1.0", "terraform-provider-grit"),
];

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A configuration of a document or an example, with the modules of this commit, which are in `folder`. Its sources name the version of this commit:
/// without a version, a new commit would change the instances of users.
pub(super) fn with_local_modules(text: &str, folder: &str) -> String {
    const SOURCE: &str = "github.com/runner-tools/terraform-provider-grit//examples/modules";
    const VERSION: &str = concat!("?ref=v", env!("CARGO_PKG_VERSION"), "\"");
    let count = text.matches(SOURCE).count();
    assert!(
        count > 0 && text.matches(VERSION).count() == count,
        "not all sources end with {VERSION}: {text}"
    );
    text.replace(SOURCE, folder).replace(VERSION, "\"")
}

/// All modules, and a plugin directory with all providers.
pub(super) fn workspace() -> Workspace {
    let mut workspace = Workspace::new(&[]).unwrap();
    let settings = workspace.path().join("no-settings");
    fs::write(&settings, "").unwrap();
    workspace.set_env("TF_CLI_CONFIG_FILE", settings);
    let platform = format!("linux_{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" });
    for (source, version, program) in PROVIDERS {
        let plugins = workspace.path().join("home/.terraform.d/plugins").join(core().registry());
        let folder = plugins.join(source).join(version).join(&platform);
        fs::create_dir_all(&folder).unwrap();
        let name = source.rsplit('/').next().unwrap();
        symlink(built(program).unwrap(), folder.join(format!("terraform-provider-{name}_v{version}")))
            .unwrap();
    }
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/modules");
    copy(&modules, &workspace.root().join("modules"));
    workspace
}

/// Runs a command in a directory below `modules/`, and initializes it before the first one.
pub(super) fn run_in(workspace: &mut Workspace, directory: &str, command: &[&str]) -> Run {
    let change = format!("-chdir=modules/{directory}");
    let data: PathBuf = workspace.path().join("data").join(directory.replace('/', "-"));
    let is_initialized = data.is_dir();
    workspace.set_env("TF_DATA_DIR", data);
    if !is_initialized {
        workspace.run([&change, "init", "-no-color"]).unwrap().succeeded();
    }
    let arguments = [&[change.as_str()], command].concat();
    workspace.run(arguments).unwrap()
}

#[test]
fn every_module_passes_its_tests() {
    let mut workspace = workspace();
    for module in MODULES {
        // `tofu test` cannot compare the outputs of two runs, and fails for a sensitive variable of a run.
        for file in ["generation", "sensitive"] {
            let tests = workspace.root().join("modules").join(module).join("tests");
            let file = tests.join(file).with_extension("tftest.hcl");
            if core().product == Product::OpenTofu && file.is_file() {
                fs::remove_file(file).unwrap();
            }
        }
        let run = run_in(&mut workspace, module, &["test", "-no-color"]).succeeded();
        assert!(
            run.stdout.contains("Success!") && !run.stdout.contains(" 0 passed"),
            "{module}: {}",
            run.stdout
        );
    }
}

/// The name of the worker group that a module creates for the variables of its tests.
fn worker_group(workspace: &mut Workspace, module: &str) -> String {
    let tests = workspace.root().join("modules").join(module).join("tests");
    let text = fs::read_to_string(tests.join("manager.tftest.hcl")).unwrap();
    let (head, _) = text.split_once("\nrun \"").unwrap();
    // The message of a failed assertion shows the value.
    let run = "run \"name\" {\n  assert {\n    condition = output.worker_group == \"\"\n    error_message = \"<${output.worker_group}>\"\n  }\n}\n";
    fs::write(tests.join("name.tftest.hcl"), format!("{head}\n{run}")).unwrap();
    let run = run_in(workspace, module, &["test", "-no-color", "-filter=tests/name.tftest.hcl"]);
    let name = run.stderr.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    name.unwrap_or_else(|| panic!("no name: {}{}", run.stdout, run.stderr)).0.to_owned()
}

#[test]
fn upgraded_module_has_another_worker_group() {
    let mut workspace = workspace();
    let modules = workspace.root().join("modules");
    for module in ["runner-manager-aws", "runner-manager-google"] {
        let mut names = BTreeSet::from([worker_group(&mut workspace, module)]);
        // The module's own file has the configuration of the autoscaler, and `variables.tf` of cloud-init has defaults that are not passed.
        for file in [
            "main.tf",
            "variables.tf",
            "templates/block-metadata.sh",
            "templates/config.toml.tftpl",
            "templates/deploy-forwarding.conf.tftpl",
            "templates/first-boot.sh.tftpl",
        ]
        .map(|file| format!("cloud-init/{file}"))
        .into_iter()
        .chain([format!("{module}/main.tf")])
        {
            let path = modules.join(&file);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, format!("{text}\n# Another version.\n")).unwrap();
            assert!(names.insert(worker_group(&mut workspace, module)), "{module}: {file}: {names:?}");
        }
    }
}

/// Without an input that replaces the instance, an old and a new manager would share the worker group.
#[test]
fn generation_has_every_input_that_replaces_the_instance() {
    for (module, in_place) in [
        ("runner-manager-aws", ["name", "security_group_ids", "tags", "termination_protection"]),
        ("runner-manager-google", ["name", "network_tags", "labels", "termination_protection"]),
    ] {
        let read =
            |file: &str| fs::read_to_string(repository("examples/modules").join(module).join(file)).unwrap();
        let (main, variables) = (read("main.tf"), read("variables.tf"));
        let (_, rest) = main.split_once("generation = nonsensitive(").unwrap();
        let (generation, _) = rest.split_once("]))").unwrap();
        let used: BTreeSet<&str> = generation
            .split([',', '[', ' ', '\n', ']'])
            .filter_map(|word| word.strip_prefix("var."))
            .collect();
        let names =
            variables.lines().filter_map(|line| line.strip_prefix("variable \"")?.strip_suffix("\" {"));
        let expected: BTreeSet<&str> = names.filter(|name| !in_place.contains(name)).collect();
        assert_eq!(used, expected, "{module}");
    }
}

#[test]
fn every_module_and_example_is_valid() {
    let mut workspace = workspace();
    for module in MODULES {
        if !core().has_mock_providers() {
            // Terraform 1.6 reads the tests of the root module, and rejects their mocks.
            fs::remove_dir_all(workspace.root().join("modules").join(module).join("tests")).unwrap();
        }
        run_in(&mut workspace, module, &["validate", "-no-color"]).succeeded();
        let example = format!("{module}/examples/basic");
        if workspace.root().join("modules").join(&example).is_dir() {
            run_in(&mut workspace, &example, &["validate", "-no-color"]).succeeded();
        } else {
            assert!(["cloud-init", "grit-managers"].contains(&module), "{module} has no example");
        }
    }
}

#[test]
fn prometheus_module_refuses_rules_with_unknown_thresholds() {
    let mut workspace = workspace();
    // Terraform 1.6 reads the tests of the root module, and rejects their mocks.
    fs::remove_dir_all(workspace.root().join("modules/prometheus/tests")).unwrap();
    let plan = ["plan", "-no-color", "-var=runner_managers={}", "-var=drain_long_after=172800"];
    run_in(&mut workspace, "prometheus", &plan).succeeded();
    let rules = workspace.root().join("modules/prometheus/files/grit-wrapper.rules.yml");
    let text = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, text.replace("86400", "90000")).unwrap();
    let refused = run_in(&mut workspace, "prometheus", &plan).failed();
    assert!(refused.stderr.contains("other thresholds than its inputs replace"), "{}", refused.stderr);
}

#[test]
fn modules_are_formatted() {
    let mut workspace = workspace();
    let run = run_in(&mut workspace, "cloud-init", &["fmt", "-check", "-recursive", ".."]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
}

/// Each block of the guide is a configuration without the provider requirements and the variables.
#[test]
fn host_keys_guide_is_valid() {
    const GUIDE: &str = include_str!("../../../docs/guides/host-keys.md");
    let mut workspace = workspace();
    let blocks = page::blocks(GUIDE, "terraform");
    assert_eq!(blocks.len(), 5);
    for (index, block) in blocks.into_iter().enumerate() {
        let words: BTreeSet<&str> =
            block.split(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | '.')).collect();
        let variables = words.iter().filter_map(|word| word.strip_prefix("var."));
        let mut variables: String = variables.map(|name| format!("variable \"{name}\" {{}}\n")).collect();
        // Of the recipe whose key is pinned.
        if block.contains("local.") && !block.contains("locals {") {
            variables += "locals {\n  host_key = \"\"\n  instance_id = \"\"\n}\n";
        }
        let names = PROVIDERS.map(|(source, ..)| (source, source.rsplit('/').next().unwrap()));
        let used = names.iter().filter(|(_, name)| block.contains(&format!("\"{name}")));
        let required: String =
            used.map(|(source, name)| format!("    {name} = {{ source = \"{source}\" }}\n")).collect();
        let head = format!("terraform {{\n  required_providers {{\n{required}  }}\n}}\n");
        workspace.write(&format!("modules/guide-{index}/versions.tf"), &(head + &variables)).unwrap();
        workspace.write(&format!("modules/guide-{index}/main.tf"), block).unwrap();
        let run = run_in(&mut workspace, &format!("guide-{index}"), &["validate", "-no-color"]);
        assert_eq!(run.code, Some(0), "{block}\n{}", run.stderr);
        let run = run_in(&mut workspace, &format!("guide-{index}"), &["fmt", "-check", "-diff", "main.tf"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    }
}

/// GRIT's module `google/runner`, as far as a rollout depends on it: the inputs of the guide, and all outputs. No `create_before_destroy`.
const GRIT_MODULE: &str = r#"
terraform {
  required_providers {
    lab = {
      source = "runner-tools/lab"
    }
  }
}

variable "metadata" {
  type = object({ name = string, labels = map(string), min_support = string })
}

variable "runner_version_lookup" {
  type = object({ skew = number, runner_version = string })
}

variable "runner_wrapper" {
  type = object({ enabled = bool })
}

resource "lab_instance" "runner_manager" {
  name           = var.metadata.name
  runner_version = var.runner_version_lookup.runner_version
}

output "enabled" {
  value = true
}

output "internal_ip" {
  value = lab_instance.runner_manager.address
}

output "external_ip" {
  value = tostring(null)
}

output "internal_hostname" {
  value = "${var.metadata.name}.internal"
}

output "instance_name" {
  value = lab_instance.runner_manager.instance_name
}

output "instance_id" {
  value = lab_instance.runner_manager.id
}

output "wrapper_address" {
  value = var.runner_wrapper.enabled ? lab_instance.runner_manager.wrapper_address : ""
}
"#;

/// The configuration of the guide, with both modules in this workspace.
fn guide() -> String {
    const GUIDE: &str = include_str!("../../../docs/guides/grit-modules.md");
    let block = page::blocks(GUIDE, "terraform")[0];
    let theirs = "gitlab.com/gitlab-org/ci-cd/runner-tools/grit//modules/google/runner";
    assert!(block.contains(theirs), "{block}");
    with_local_modules(&block.replace(theirs, "./grit"), ".")
}

#[test]
fn grit_modules_guide_keeps_rollout_order() {
    let mut rollout = Rollout::of(&guide()).unwrap();
    let key = rollout.lab.client_key().path.clone();
    rollout
        .set(
            "ssh",
            json!({ "private_key_path": key, "username": username(), "insecure_ignore_host_key": true }),
        )
        .unwrap();
    rollout.set("versions", json!({ "v1": "19.2.1", "v2": "19.2.2" })).unwrap();
    rollout.workspace.write("grit/main.tf", GRIT_MODULE).unwrap();
    for module in ["grit-managers", "rollout"] {
        for file in ["main.tf", "variables.tf", "outputs.tf", "versions.tf"] {
            let path = repository("examples/modules").join(module).join(file);
            let text = fs::read_to_string(path).unwrap();
            rollout.workspace.write(&format!("{module}/{file}"), &text).unwrap();
        }
    }
    rollout.workspace.get().unwrap().succeeded();
    rollout.set("active_versions", json!(["v1"])).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), [""; 0]);

    let jobs = rollout.hold_jobs(2);
    rollout.set("active_versions", json!(["v2"])).unwrap();
    let run = rollout.apply_while(|| {
        for name in ["blue-v1", "green-v1"] {
            rollout.wait_for_drain(name);
        }
        rollout.lab.queue().release(&jobs);
    });
    let timeline = run.unwrap().succeeded().timeline();
    for name in ["blue", "green"] {
        assert_order(
            &timeline,
            &[
                &format!("complete create module.runner[\"{name}-v2\"].lab_instance.runner_manager"),
                &format!("complete create module.rollout.grit_runner_drain.this[\"{name}-v2\"]"),
                "complete update module.rollout.grit_runner_health.this",
                &format!("start delete module.rollout.grit_runner_drain.this[\"{name}-v1\"]"),
                &format!("complete delete module.rollout.grit_runner_drain.this[\"{name}-v1\"]"),
                &format!("start delete module.runner[\"{name}-v1\"].lab_instance.runner_manager"),
            ],
        );
        assert_eq!(rollout.runner_was_alive_at_the_end_of(&format!("{name}-v1")), Some(false));
    }
    rollout.workspace.destroy().unwrap().succeeded();
    assert!(rollout.hosts().is_empty());
}
