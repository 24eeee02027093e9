//! The steps of a new user, without Rust: install a release as the README describes, apply the unmodified example, upgrade, and roll. Only AWS
//! is a stand-in, and hosts have the embedded SSH server, because each needs the default path of the wrapper's socket.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use grit_testkit::page;
use grit_tests::{
    debian::succeeded,
    dist::{self, PLATFORM},
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
    page::blocks(README, language)[0]
}

/// Puts the provider and the stand-in for AWS into the plugin directory of the workspace.
pub(super) fn install(workspace: &Workspace, registry: &str) {
    let version = env!("CARGO_PKG_VERSION");
    link(workspace, &format!("{registry}/runner-tools/grit/{version}"), "terraform-provider-grit");
    install_aws(workspace, registry);
}

fn install_aws(workspace: &Workspace, registry: &str) {
    link(workspace, &format!("{registry}/hashicorp/aws/6.0.0"), "terraform-provider-lab");
}

/// `address` ends with the name and the version of the provider.
fn link(workspace: &Workspace, address: &str, program: &str) {
    let folder = workspace.path().join("home/.terraform.d/plugins").join(address).join(PLATFORM);
    fs::create_dir_all(&folder).unwrap();
    let (provider, version) = address.rsplit_once('/').unwrap();
    let name = provider.rsplit('/').next().unwrap();
    symlink(built(program).unwrap(), folder.join(format!("terraform-provider-{name}_v{version}"))).unwrap();
}

/// The PATH of this machine without Rust.
pub(super) fn path_without_rust() -> String {
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::env::split_paths(&path);
    let path = std::env::join_paths(folders.filter(|folder| !folder.join("cargo").exists())).unwrap();
    path.into_string().unwrap()
}

/// The files of a release of this version.
pub(super) struct Release(tempfile::TempDir);

impl Release {
    pub(super) fn create() -> Self {
        let folder = tempfile::tempdir().unwrap();
        succeeded(&mut dist::command(env!("CARGO_PKG_VERSION"), folder.path()).unwrap()).unwrap();
        Self(folder)
    }

    /// Installs the provider as the README describes.
    pub(super) fn install(&self, workspace: &Workspace, registry: &str) {
        let lines = block("sh").replace("registry=registry.terraform.io", &format!("registry={registry}"));
        let mut shell = Command::new("sh");
        shell.args(["-euc", &lines]).current_dir(self.0.path()).env_clear();
        shell.env("PATH", path_without_rust()).env("HOME", workspace.path().join("home"));
        succeeded(&mut shell).unwrap();
    }

    /// The wrapper, from its archive.
    pub(super) fn wrapper(&self) -> PathBuf {
        let archive = format!("grit-wrapper_{}_{PLATFORM}", env!("CARGO_PKG_VERSION"));
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--file"]).arg(format!("{archive}.tar.gz")).current_dir(self.0.path());
        succeeded(&mut tar).unwrap();
        self.0.path().join(archive).join("grit-wrapper")
    }
}

/// The version and the checksums of the provider in the lock file.
fn locked(workspace: &Workspace) -> (String, Vec<String>) {
    let text = fs::read_to_string(workspace.root().join(".terraform.lock.hcl")).unwrap();
    let (_, block) = text.split_once("runner-tools/grit\"").unwrap();
    let block = block.split("\n}").next().unwrap();
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let version = block.lines().find(|line| line.trim().starts_with("version")).and_then(quoted).unwrap();
    let hashes = block.lines().filter(|line| line.trim().starts_with('"')).filter_map(quoted);
    (version, hashes.collect())
}

#[test]
fn release_installs_rolls_example_and_upgrades() {
    let release = Release::create();
    let wrapper = release.wrapper();
    let lab = Lab::start().unwrap();
    let host_key = KeyPair::generate().unwrap();
    let image = ssh::Choice::Image { host_key: host_key.private.clone() };
    lab.cloud().shape(move |_, spec| {
        let wrapper_program = Some(wrapper.clone());
        *spec = HostSpec { ssh: image.clone(), wrapper_program, ..spec.clone() };
    });

    let mut workspace = Workspace::new(&[]).unwrap().env(CLOUD, lab.cloud().endpoint());
    // Without settings: Terraform uses its default plugin directories.
    let settings = workspace.path().join("no-settings");
    fs::write(&settings, "").unwrap();
    workspace.set_env("TF_CLI_CONFIG_FILE", settings);
    workspace.set_env("PATH", path_without_rust());
    let registry = core().registry();
    release.install(&workspace, registry);
    install_aws(&workspace, registry);
    for file in fs::read_dir(repository("examples/rollouts/versions-as-keys")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), workspace.root().join(file.file_name())).unwrap();
    }

    workspace.run(["init", "-no-color"]).unwrap().succeeded();
    let (first, hashes) = locked(&workspace);
    assert_eq!(first, env!("CARGO_PKG_VERSION"));
    assert!(hashes.iter().any(|hash| hash.starts_with("h1:")), "{hashes:?}");
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

    // The next version, which the lock file selects only when an upgrade is requested. It continues with the same state.
    let mut next = dist::part("0.99.0", release.0.path(), "provider").unwrap();
    succeeded(next.arg("--mirror").arg(workspace.path().join("home/.terraform.d/plugins"))).unwrap();
    workspace.run(["init", "-no-color"]).unwrap().succeeded();
    assert_eq!(locked(&workspace), (first, hashes.clone()));
    workspace.run(["init", "-no-color", "-upgrade"]).unwrap().succeeded();
    let (second, new_hashes) = locked(&workspace);
    assert!(second == "0.99.0" && new_hashes != hashes, "{second}: {new_hashes:?}");
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
