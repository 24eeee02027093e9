//! The processes of `proxy_command` and `ssh_command` end with the provider, also while an unused session is still open.

use std::{
    fs,
    path::{Path, PathBuf},
};

use grit_tests::{
    lab::Lab,
    poll,
    rollout::PATIENCE,
    terraform::{Workspace, built},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

/// The provider loses the race against its own exit in most runs.
const RUNS: usize = 4;

/// The PIDs that commands have written to a file. What is left at the end of a failed test is killed.
struct Started(PathBuf);

impl Started {
    fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn running(&self) -> Vec<i32> {
        self.pids().into_iter().filter(|pid| is_running(*pid)).collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for pid in self.running() {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

/// A process that has exited, and was not waited for, has no arguments.
fn is_running(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|arguments| !arguments.is_empty())
}

/// `script` starts a helper process. The command then becomes a `dial-stdio` to `address`.
fn command(script: &str, pids: &Path, address: &str) -> Json {
    let dial = built("grit-wrapper").unwrap();
    let (pids, dial) = (pids.display(), dial.display());
    let script =
        format!("{script} echo $! >> {pids}; echo $$ >> {pids}; exec {dial} dial-stdio --address {address}");
    json!(["sh", "-c", script])
}

/// Plans a data source several times through a command. Asserts that each process of the command exits.
fn leaves_no_process(script: &str, ssh: impl Fn(&Lab, &dyn Fn(&str) -> Json) -> Json) {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let workspace = Workspace::new(&["grit"]).unwrap();
    let started = Started(workspace.path().join("pids"));
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": { "ssh": ssh(&lab, &|address| command(script, &started.0, address)) } },
        "data": { "grit_runner_status": { "all": {
            "runner_managers": { "m1": instance.runner_manager() },
            "lifecycle": { "postcondition": {
                "condition": "${self.managers.m1.error == null}",
                "error_message": "${jsonencode(self.managers.m1)}",
            } },
        } } },
    });
    workspace.write("main.tf.json", &main.to_string()).unwrap();
    for run in 1..=RUNS {
        workspace.plan().unwrap().succeeded();
        assert!(started.pids().len() >= 2 * run, "no command was started");
        poll::until("all processes of the command have exited", PATIENCE, || {
            let running = started.running();
            if running.is_empty() { Ok(()) } else { Err(running) }
        });
    }
    workspace.providers().assert_none_left(PATIENCE);
}

fn proxy(lab: &Lab, command: &dyn Fn(&str) -> Json) -> Json {
    json!({
        "private_key_path": lab.client_key().path,
        "proxy_command": command("tcp://{{host}}:{{port}}"),
    })
}

#[test]
fn proxy_command_ends_with_the_provider() {
    leaves_no_process("sleep 3017 &", proxy);
}

#[test]
fn ssh_command_ends_with_the_provider() {
    leaves_no_process("sleep 3017 &", |_, command| json!({ "ssh_command": command("{{wrapper_address}}") }));
}

#[test]
fn helper_that_ignores_sigterm_ends_with_the_provider() {
    leaves_no_process("(trap '' TERM; exec sleep 3017) &", proxy);
}

#[test]
fn command_that_ignores_sigterm_ends_with_the_provider() {
    leaves_no_process("trap '' TERM; sleep 3017 &", proxy);
}
