//! docs/guides/drain-hangs.md: its commands, unchanged, during a rollout that waits for two jobs.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use grit_testkit::{not_covered, page, program};
use grit_tests::{
    poll,
    rollout::{PATIENCE, Rollout},
    sshd::{Sshd, is_installed},
    terraform::{Workspace, built},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const GUIDE: &str = include_str!("../../../docs/guides/drain-hangs.md");

/// The provider block of the separate directory.
const PROVIDER: &str = r#"
terraform {
  required_providers {
    grit = {
      source = "runner-tools/grit"
    }
  }
}
variable "ssh" { type = any }
variable "known_hosts" { type = string }
provider "grit" { ssh = merge(var.ssh, { known_hosts = var.known_hosts }) }
"#;

/// A command that ends with the test.
struct Running(Option<Child>);

impl Running {
    /// Waits for the end, and returns what the command printed.
    #[track_caller]
    fn output(mut self, code: Option<i32>) -> String {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(code.is_none() || output.status.code() == code, "{text}");
        text
    }

    /// Sends the signal of Ctrl-C, and waits for the end.
    #[track_caller]
    fn interrupt(self) -> String {
        let id = self.0.as_ref().unwrap().id().cast_signed();
        kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
        self.output(Some(1))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ended = child.kill();
            let _status = child.wait();
        }
    }
}

/// A shell with the environment of the workspace, in its directory, and with these programs.
fn shell(workspace: &Workspace, programs: &Path, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", script]).current_dir(workspace.root()).env_clear();
    shell.envs(workspace.environment());
    shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).stdin(Stdio::null());
    shell
}

#[track_caller]
fn text(mut command: Command) -> String {
    let output = command.output().unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{text}{errors}");
    text.into_owned()
}

#[track_caller]
fn shows(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn guide_commands_show_and_end_a_drain() {
    if !is_installed() {
        return not_covered("the commands for a drain that hangs", "sshd is not installed");
    }
    let [apply, progress, on_host, forward, through, end] = page::blocks(GUIDE, "sh")[..] else {
        panic!("the guide has other blocks")
    };
    let [configuration] = page::blocks(GUIDE, "terraform")[..] else { panic!("the guide has other blocks") };
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.expect_lost(2);
    rollout.lab.expect(&["blue-v1 received SIGQUIT, SIGTERM"]);
    rollout.deploy(&["blue-v1"]);
    rollout.hold_jobs(2);
    rollout.managers(&["blue-v2"]).unwrap();
    let host = rollout.host("blue-v1");
    let (socket, key) = (host.wrapper_socket().display().to_string(), rollout.lab.client_key().clone());

    // An SSH server with the line of the security guide, and the names of the guide.
    let sshd = Sshd::builder()
        .authorized_line(format!(
            "restrict,port-forwarding,command=\"/bin/false\",permitopen=\"[{socket}]:*\" {}",
            key.public.trim()
        ))
        .start()
        .unwrap();
    let programs = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(built("grit-wrapper").unwrap(), programs.path().join("grit-wrapper")).unwrap();
    let terraform = rollout.workspace.command(["version"]).get_program().to_owned();
    std::os::unix::fs::symlink(terraform, programs.path().join("terraform")).unwrap();
    let known_hosts = programs.path().join("known_hosts");
    std::fs::write(&known_hosts, sshd.known_hosts()).unwrap();
    let ssh = format!(
        "exec /usr/bin/ssh -F none -o IdentitiesOnly=yes -o UserKnownHostsFile={} -i {} -p {} \"$@\"",
        known_hosts.display(),
        key.path.display(),
        sshd.address().port()
    );
    program::script(&programs.path().join("ssh"), &ssh).unwrap();
    let replaced = |text: &str| {
        let (user, address) = (sshd.username(), sshd.address());
        text.replace("deploy@10.0.0.11", &format!("{user}@{}", address.ip()))
            .replace("\"10.0.0.11\"", &format!("\"{address}\""))
            .replace("\"deploy\"", &format!("\"{user}\""))
            .replace("/run/grit-wrapper/gitlab-runner.service.sock", &socket)
    };
    let shell = |script: &str| shell(&rollout.workspace, programs.path(), &replaced(script));

    let start = || {
        let mut apply = shell(&format!("exec env {} -auto-approve -no-color", apply.trim_end()));
        Running(Some(apply.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    };

    // The progress.
    let waiting = start();
    rollout.wait_for_drain("blue-v1");
    let log = rollout.workspace.root().join("terraform.log");
    let line = poll::until("the progress is in the log", PATIENCE, || {
        let output = shell(progress).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains("finish its jobs and exit") { Ok(text) } else { Err(text) }
    });
    shows(&line, &["manager=blue-v1", "waited=", "left=\"2 jobs left, oldest ", " (step_script)\""]);

    // The jobs: on the host, through the forwarded socket, and from a separate directory.
    let facts = ["state      draining", "jobs       2", "oldest job ", "SIGQUIT    sent", "step_script"];
    let mut here = shell(on_host);
    here.env("GRIT_WRAPPER_ADDRESS", host.wrapper_address());
    shows(&text(here), &facts);
    let mut forwarding = shell(&format!("exec {forward}"));
    let _forwarding = Running(Some(forwarding.stderr(Stdio::null()).spawn().unwrap()));
    let forwarded = rollout.workspace.root().join("blue-v1.sock");
    poll::until("the forwarded socket", PATIENCE, || if forwarded.exists() { Ok(()) } else { Err(()) });
    shows(&text(shell(through)), &facts);
    let separate = Workspace::new(&["grit"]).unwrap();
    separate.write("main.tf", &(PROVIDER.to_owned() + &replaced(configuration))).unwrap();
    let settings = json!({ "private_key_path": key.path, "username": sshd.username() });
    let settings = json!({ "ssh": settings, "known_hosts": sshd.known_hosts() });
    separate.write("terraform.tfvars.json", &settings.to_string()).unwrap();
    separate.apply().unwrap().succeeded();
    let status = separate.show(None).unwrap()["values"]["outputs"]["blue"]["value"]["blue-v1"].clone();
    assert_eq!((&status["state"], &status["jobs"]), (&json!("draining"), &json!(2)), "{status}");
    assert!(status["oldest_job_seconds"].is_number() && status["reasons"].is_array(), "{status}");

    // Ctrl-C: the drain continues on the host, and the same command joins it.
    let stopped = waiting.interrupt();
    shows(&stopped, &["Code: interrupted"]);
    shows(&text(shell(through)), &facts);
    let waiting = start();
    poll::until("the apply joins the drain", PATIENCE, || {
        let log = std::fs::read_to_string(&log).unwrap();
        if log.matches("drain started").count() == 2 { Ok(()) } else { Err(log) }
    });

    // The end.
    let ended = text(shell(end));
    shows(&ended, &["deadline   20", "state      stopped", "outcome    jobs aborted"]);
    shows(&waiting.output(Some(0)), &["Apply complete!", "blue-v1", "Code: wrapper_error"]);
    assert_eq!(rollout.hosts(), ["blue-v2"]);
    assert_eq!(rollout.signals("blue-v1"), ["SIGQUIT", "SIGTERM"]);
}
