//! The rehearsal of docs/guides/migration.md: a directory that the Deployer manages is taken over without an effect on its runners.

use std::{collections::BTreeMap, process::Command};

use grit_testkit::page;
use grit_tests::{lab::event::What, ssh_server::KeyPair, terraform::Workspace};
use serde_json::json;

use super::two_directories::Directories;

const GUIDE: &str = include_str!("../../../docs/guides/migration.md");

/// The first block of the guide in a language.
fn block(language: &str) -> &'static str {
    page::blocks(GUIDE, language)[0]
}

/// The processes of the runners, by host.
fn runners(directories: &Directories) -> BTreeMap<String, Option<u32>> {
    let hosts = directories.lab.cloud().instances().into_iter();
    hosts.map(|(instance, host)| (instance.instance_name, host.runner_pid())).collect()
}

#[test]
fn takeover_of_deployer_directory_signals_no_runner() {
    let directories = Directories::of("retire-another-directory");
    directories.initialize("v1", false);
    directories.apply("v1", &[]).succeeded();
    directories.wait_until_running("v1");
    let jobs = directories.hold_jobs();
    let before = runners(&directories);
    assert!(before.len() == 2 && before.values().all(Option::is_some), "{before:?}");

    // The steps of the guide. Only the socket is another one: the wrappers of the lab listen on the one of the package.
    directories.write_keys("v1");
    let versions = directories.workspace.root().join("v1/versions.tf");
    let text = std::fs::read_to_string(&versions).unwrap();
    let head = "required_providers {\n";
    assert!(text.contains(head));
    std::fs::write(&versions, text.replacen(head, &format!("{head}{}", block("hcl")), 1)).unwrap();
    let socket = "unix:///var/run/gitlab-runner-wrapper.sock";
    assert!(block("terraform").contains(socket));
    let config = block("terraform").replace(socket, "unix:///run/grit-wrapper/gitlab-runner.service.sock");
    directories.workspace.write("v1/grit.tf", &config).unwrap();
    directories.run("v1", &["init", "-no-color"]).succeeded();
    let plan = directories.run("v1", &["plan", "-json"]).succeeded();
    let wanted = [
        "create grit_runner_drain.manager[\"blue-v1\"]",
        "create grit_runner_drain.manager[\"green-v1\"]",
        "create grit_runner_health.all",
    ];
    assert_eq!(plan.planned(), wanted);
    assert_eq!(plan.warnings(), []);
    directories.apply("v1", &[]).succeeded();
    assert_eq!(directories.run("v1", &["plan", "-json"]).succeeded().planned(), [""; 0]);

    assert_eq!(runners(&directories), before, "the same processes");
    for host in before.keys() {
        assert_eq!(directories.signals(host), [""; 0]);
    }
    let started = directories.lab.events().all().into_iter();
    let started = started.filter(|event| matches!(event.what, What::RunnerStarted { .. })).count();
    assert_eq!(started, 2);
    assert_eq!(directories.lab.queue().tally().running, 2);

    // From now on the destroy of the directory drains.
    std::thread::scope(|scope| {
        let destroy = scope.spawn(|| directories.destroy("v1"));
        directories.wait_for_drains("v1");
        directories.lab.queue().release(&jobs);
        destroy.join().unwrap().succeeded();
    });
    let tally = directories.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (2, 0));
    for host in before.keys() {
        assert_eq!(directories.signals(host), ["SIGQUIT"]);
    }
}

/// Runs the guide's script for exit codes in a workspace whose health check fails.
fn exit_code(manager: &serde_json::Value, timeout: &str) -> Option<i32> {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let health = json!({
        "runner_managers": { "m1": manager },
        "retry": { "attempts": 2 },
        "timeouts": { "create": timeout },
    });
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": { "ssh": { "private_key_path": "deploy_key", "insecure_ignore_host_key": true } } },
        "resource": { "grit_runner_health": { "all": health } },
    });
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    workspace.write("deploy_key", &KeyPair::generate().unwrap().private).unwrap();
    let terraform = workspace.command([""; 0]);
    let script =
        format!("terraform() {{ '{}' \"$@\"; }}\n{}", terraform.get_program().display(), block("sh"));
    let mut shell = Command::new("sh");
    shell.args(["-uc", &script]).current_dir(workspace.root()).env_clear();
    shell.envs(workspace.environment());
    shell.status().unwrap().code()
}

#[test]
fn script_of_the_guide_returns_exit_codes_of_the_deployer() {
    let manager = |address: &str| json!({ "instance_name": "m1", "address": address, "wrapper_address": "unix:///run/w.sock", "username": "x" });
    // Nothing listens on port 1.
    assert_eq!(exit_code(&manager("127.0.0.1:1"), "20s"), Some(2));
    assert_eq!(exit_code(&manager(""), "20s"), Some(1));
}
