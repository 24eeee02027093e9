//! The modules in `examples/modules/`: their tests, their examples, and the user data that they make.
//!
//! The providers of the clouds are stand-ins with schemas only (`grit_tests::lab_provider::clouds`).

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use grit_tests::terraform::{Product, Run, Workspace, built, core};

const MODULES: [&str; 4] = ["cloud-init", "rollout", "runner-manager-aws", "runner-manager-google"];

/// The providers that the modules require, with the program that serves each.
const PROVIDERS: [(&str, &str, &str); 4] = [
    ("hashicorp/aws", "6.0.0", "terraform-provider-clouds"),
    ("hashicorp/google", "6.0.0", "terraform-provider-clouds"),
    ("hashicorp/tls", "4.0.0", "terraform-provider-clouds"),
    ("runner-tools/grit", "0.1.0", "terraform-provider-grit"),
];

fn copy(from: &Path, to: &Path) {
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

/// All modules, and a plugin directory with all providers.
fn workspace() -> Workspace {
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

/// Initializes a directory below `modules/`, and runs a command in it.
fn run_in(workspace: &mut Workspace, directory: &str, command: &[&str]) -> Run {
    let change = format!("-chdir=modules/{directory}");
    let data: PathBuf = workspace.path().join("data").join(directory.replace('/', "-"));
    workspace.set_env("TF_DATA_DIR", data);
    workspace.run([&change, "init", "-no-color"]).unwrap().succeeded();
    let arguments = [&[change.as_str()], command].concat();
    workspace.run(arguments).unwrap()
}

#[test]
fn every_module_passes_its_tests() {
    let mut workspace = workspace();
    for module in MODULES {
        let generation = workspace.root().join("modules").join(module).join("tests/generation.tftest.hcl");
        if core().product == Product::OpenTofu && generation.is_file() {
            // OpenTofu cannot compare the outputs of two runs.
            fs::remove_file(generation).unwrap();
        }
        let run = run_in(&mut workspace, module, &["test", "-no-color"]).succeeded();
        assert!(
            run.stdout.contains("Success!") && !run.stdout.contains(" 0 passed"),
            "{module}: {}",
            run.stdout
        );
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
            assert_eq!(module, "cloud-init", "{module} has no example");
        }
    }
}

#[test]
fn modules_are_formatted() {
    let mut workspace = workspace();
    let run = run_in(&mut workspace, "cloud-init", &["fmt", "-check", "-recursive", ".."]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
}
