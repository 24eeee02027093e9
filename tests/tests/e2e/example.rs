//! The steps of a new user: install the provider from a checkout, and apply the unmodified example. Only AWS is a stand-in, and hosts
//! have the embedded SSH server, because each needs the default path of the wrapper's socket.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use grit_tests::{
    lab::{
        Lab,
        event::What,
        host::{HostSpec, ssh},
    },
    lab_provider::instance::CLOUD,
    rollout::assert_order,
    ssh_server::KeyPair,
    terraform::{Workspace, built, core},
};
use serde_json::json;

const README: &str = include_str!("../../../README.md");

/// A directory of this repository.
pub(super) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The first block of the README in a language.
fn block(language: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("```{language}\n")).expect(language);
    rest.split("```").next().unwrap()
}

/// Runs the installation of the README in a checkout that has been built, and puts the stand-in for AWS into the same mirror.
pub(super) fn install(workspace: &Workspace, registry: &str) {
    let home = workspace.path().join("home");
    let checkout = workspace.path().join("checkout");
    fs::create_dir_all(checkout.join("target/release")).unwrap();
    let program = "terraform-provider-grit";
    symlink(built(program).unwrap(), checkout.join("target/release").join(program)).unwrap();
    let lines = block("sh").replace("registry=registry.terraform.io", &format!("registry={registry}"));
    let shell =
        Command::new("sh").args(["-euc", &lines]).current_dir(&checkout).env("HOME", &home).output().unwrap();
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));

    let plugins = home.join(".terraform.d/plugins").join(registry);
    let version = plugins.join("runner-tools/grit").join(env!("CARGO_PKG_VERSION"));
    let platform =
        fs::read_dir(&version).expect("the README names this version").next().unwrap().unwrap().file_name();
    let aws = plugins.join("hashicorp/aws/6.0.0").join(platform);
    fs::create_dir_all(&aws).unwrap();
    symlink(built("terraform-provider-lab").unwrap(), aws.join("terraform-provider-aws_v6.0.0")).unwrap();
}

#[test]
fn example_installs_applies_and_rolls_unmodified() {
    let lab = Lab::start().unwrap();
    let host_key = KeyPair::generate().unwrap();
    let image = ssh::Choice::Image { host_key: host_key.private.clone() };
    lab.cloud().shape(move |_, spec| *spec = HostSpec { ssh: image.clone(), ..spec.clone() });

    let mut workspace = Workspace::new(&[]).unwrap().env(CLOUD, lab.cloud().endpoint());
    // Without settings: Terraform uses its default plugin directories.
    let settings = workspace.path().join("no-settings");
    fs::write(&settings, "").unwrap();
    workspace.set_env("TF_CLI_CONFIG_FILE", settings);
    install(&workspace, core().registry());
    for file in fs::read_dir(repository("examples/rollouts/versions-as-keys")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), workspace.root().join(file.file_name())).unwrap();
    }

    workspace.run(["init", "-no-color"]).unwrap().succeeded();
    assert_eq!(workspace.validate().unwrap().succeeded().warnings(), []);
    let managers = |version: &str| {
        let manager =
            json!({ "ami": format!("ami-{version}"), "instance_type": "t3.small", "user_data": "#!/bin/sh" });
        json!({ "blue": manager, "green": manager })
    };
    let apply = |active: &str| {
        let variables = json!({
            "versions": { "v1": managers("19.2.1"), "v2": managers("19.2.2") },
            "active_versions": [active],
            "deploy_key_path": lab.client_key().path,
            "host_keys": [host_key.public],
        });
        workspace.write("terraform.tfvars.json", &variables.to_string()).unwrap();
        workspace.apply().unwrap().succeeded()
    };
    apply("v1");
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
    let roll = apply("v2");
    for name in ["blue", "green"] {
        assert_order(
            &roll.timeline(),
            &[
                &format!("complete create grit_runner_drain.manager[\"{name}-v2\"]"),
                "complete update grit_runner_health.all",
                &format!("start delete grit_runner_drain.manager[\"{name}-v1\"]"),
                &format!("complete delete grit_runner_drain.manager[\"{name}-v1\"]"),
                &format!("start delete aws_instance.manager[\"{name}-v1\"]"),
            ],
        );
    }
    let ends = lab.events().all().into_iter().filter_map(|event| match event.what {
        What::InstanceTerminating { runner_alive, .. } => Some(runner_alive),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [false, false]);
    workspace.destroy().unwrap().succeeded();
    assert!(lab.cloud().instances().is_empty());
}

#[test]
fn readme_configuration_is_valid() {
    let key = KeyPair::generate().unwrap();
    let mut workspace = Workspace::new(&[]).unwrap();
    let settings = workspace.path().join("no-settings");
    fs::write(&settings, "").unwrap();
    workspace.set_env("TF_CLI_CONFIG_FILE", settings);
    install(&workspace, core().registry());
    for (file, text) in [
        ("main.tf", block("terraform")),
        ("deploy_key", &key.private),
        ("host_key.pub", &key.public),
        (
            "instances.tf",
            "terraform {\n  required_providers {\n    grit = {\n      source = \"runner-tools/grit\"\n    }\n  }\n}\n\
             resource \"aws_instance\" \"manager\" {\n  for_each = toset([\"blue\"])\n  ami = \"ami-1\"\n\
             instance_type = \"t3.small\"\n  user_data = \"\"\n  tags = { Name = each.key }\n}\n",
        ),
    ] {
        workspace.write(file, text).unwrap();
    }
    workspace.run(["init", "-no-color"]).unwrap().succeeded();
    assert_eq!(workspace.validate().unwrap().succeeded().warnings(), []);
}
