//! docs/guides/quick-start.md: the shell blocks run one after the other in an empty directory, and then once more, as a new user runs
//! them with the files of a release and without Rust. docs/guides/cloud.md: both configurations are valid.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use grit_testkit::page;
use grit_tests::{
    link::Namespace,
    ssh_server::KeyPair,
    terraform::{Workspace, core, terraform},
};

use crate::{
    example::{Release, path_without_rust},
    modules,
};

const GUIDE: &str = include_str!("../../../docs/guides/quick-start.md");
const CLOUD: &str = include_str!("../../../docs/guides/cloud.md");

/// Ends what a failed run leaves: the SSH servers and the wrappers.
struct Processes<'a>(&'a Path);

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        let script = "kill $(cat run/*.pid blue/sshd.pid green/sshd.pid) 2>/dev/null";
        let _ended =
            Command::new("sh").args(["-c", script]).current_dir(self.0).stderr(Stdio::null()).status();
    }
}

#[test]
fn quick_start_rolls_out_and_can_be_repeated() {
    // The page has fixed ports.
    let network = match Namespace::new() {
        Ok(network) => network,
        Err(error) => return grit_testkit::not_covered("the quick start", &format!("{error:#}")),
    };
    let mut workspace = Workspace::new(&[]).unwrap();
    let settings = workspace.path().join("no-settings");
    fs::write(&settings, "").unwrap();
    workspace.set_env("TF_CLI_CONFIG_FILE", settings);
    workspace.set_env("TF_DATA_DIR", ".terraform");
    let release = Release::create();
    release.install(&workspace, core().registry());
    let programs = workspace.path().join("programs");
    fs::create_dir(&programs).unwrap();
    symlink(terraform().unwrap(), programs.join("terraform")).unwrap();
    symlink(release.wrapper(), programs.join("grit-wrapper")).unwrap();
    let path = format!("{}:{}", programs.display(), path_without_rust());
    workspace.set_env("PATH", path);
    // sshd requires it of root; the package's service creates it.
    if rustix::process::getuid().is_root() {
        fs::create_dir_all("/run/sshd").unwrap();
    }

    let [hosts, runner, first, rollout, cleanup] = page::blocks(GUIDE, "sh")[..] else {
        panic!("the guide has other blocks")
    };
    let configuration = page::blocks(GUIDE, "terraform")[0];
    let steps = format!(
        "{hosts}\n{runner}\ncat >main.tf <<'GUIDE'\n{configuration}GUIDE\n{first}\necho ROLLOUT\n{rollout}\necho LOG\ncat run/blue-v1.log\necho CLEANUP\n{cleanup}\n"
    );
    let script = format!("set -eu\n{steps}\necho REPEAT\n{steps}");
    let directory = workspace.root().join("quick-start");
    let output = {
        let _processes = Processes(&directory);
        let run = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).current_dir(workspace.root()).env_clear();
            shell.envs(workspace.environment());
            shell.stdin(Stdio::null()).output()
        };
        network.run(run).unwrap().unwrap()
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");

    assert!(!directory.exists(), "the page removes its directory");
    let (once, again) = text.split_once("REPEAT\n").unwrap();
    check(once);
    check(again);
}

/// The output of all steps.
fn check(text: &str) {
    let (first, rest) = text.split_once("ROLLOUT\n").unwrap();
    let (rollout, rest) = rest.split_once("LOG\n").unwrap();
    let (log, cleanup) = rest.split_once("CLEANUP\n").unwrap();
    assert!(first.contains("Apply complete! Resources: 5 added"), "{first}");
    assert!(rollout.contains("Apply complete! Resources: 4 added, 1 changed, 4 destroyed."), "{rollout}");
    assert!(cleanup.contains("Destroy complete! Resources: 5 destroyed."), "{cleanup}");
    let at = |line: &str| rollout.find(line).unwrap_or_else(|| panic!("{line}\n{rollout}"));
    for name in ["blue", "green"] {
        let ready = at("grit_runner_health.all: Modifications complete");
        let drain = at(&format!("grit_runner_drain.manager[\"{name}-v1\"]: Destroying..."));
        let drained = at(&format!("grit_runner_drain.manager[\"{name}-v1\"]: Destruction complete"));
        let gone = at(&format!("terraform_data.manager[\"{name}-v1\"]: Destroying..."));
        assert!(ready < drain && drain < drained && drained < gone, "{rollout}");
    }
    assert!(log.contains("finishing the job"), "{log}");
    assert!(rollout.contains("clean"), "{rollout}");
}

#[test]
fn configurations_of_cloud_guide_are_valid() {
    let mut workspace = modules::workspace();
    let [main, aws, google] = page::blocks(CLOUD, "terraform")[..] else {
        panic!("the guide has other blocks")
    };
    for (name, cloud) in [("aws", aws), ("google", google)] {
        // The only change: the modules of this commit.
        for (file, text) in [("main.tf", main), ("cloud.tf", cloud)] {
            let local = modules::with_local_modules(text, "..");
            workspace.write(&format!("modules/{name}/{file}"), &local).unwrap();
        }
        workspace.write(&format!("modules/{name}/deploy_key.pub"), "ssh-ed25519 AAAA deploy\n").unwrap();
        workspace
            .write(&format!("modules/{name}/deploy_key"), &KeyPair::generate().unwrap().private)
            .unwrap();
        modules::run_in(&mut workspace, name, &["validate", "-no-color"]).succeeded();
    }
}
