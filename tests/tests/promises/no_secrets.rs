//! Secrets of the provider block are in no file and no output of Terraform, however it ends, and in no process that the provider starts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grit_tests::{rollout::Rollout, sshd::ClientKey};
use serde_json::json;

const PASSPHRASE: &str = "marker-of-the-passphrase";

/// Where the secret comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Ephemeral,
    Variable,
    Environment,
}

/// A lab whose hosts take an encrypted key, and all that a run of Terraform leaves.
struct Secrets {
    rollout: Rollout,
    key: ClientKey,
    /// What the command that carries the connection has seen: its environment and its arguments.
    seen: PathBuf,
    outputs: Vec<String>,
}

impl Secrets {
    fn new(source: Source) -> Self {
        let mut rollout = Rollout::start().unwrap();
        let folder = rollout.lab.folder().to_owned();
        // The hosts know the lab's key; here it is encrypted.
        let plain = rollout.lab.client_key().path.clone();
        let encrypted = folder.join("encrypted");
        fs::copy(&plain, &encrypted).unwrap();
        let keygen = Command::new("ssh-keygen")
            .args(["-q", "-p", "-P", "", "-N", PASSPHRASE, "-f"])
            .arg(&encrypted)
            .output()
            .unwrap();
        assert!(keygen.status.success(), "{}", String::from_utf8_lossy(&keygen.stderr));
        fs::write(folder.join("encrypted.pub"), &rollout.lab.client_key().public).unwrap();
        let key = ClientKey::read(&encrypted).unwrap();

        let seen = folder.join("seen");
        let script = format!(
            "tr '\\0' '\\n' </proc/$$/environ >>{0}; tr '\\0' ' ' </proc/$$/cmdline >>{0}; \
             tr '\\0' ' ' </proc/$PPID/cmdline >>{0}; exec {1} tcp \"$1\" \"$2\"",
            seen.display(),
            env!("CARGO_BIN_EXE_carry")
        );
        let command = json!(["sh", "-c", script, "sh", "{{host}}", "{{port}}"]);
        let main = fs::read_to_string(rollout.workspace.root().join("main.tf")).unwrap();
        let kind = if source == Source::Ephemeral { "ephemeral = true" } else { "" };
        let (block, variables) = match source {
            Source::Environment => ("var.ssh", String::new()),
            _ => (
                "merge(var.ssh, { private_key = var.key, passphrase = var.passphrase })",
                format!("variable \"key\" {{\n {kind}\n}}\nvariable \"passphrase\" {{\n {kind}\n}}\n"),
            ),
        };
        let main = main.replace("ssh = var.ssh", &format!("ssh = {block}")) + &variables;
        rollout.workspace.write("main.tf", &main).unwrap();
        for (name, value) in [("KEY", &*key.private), ("PASSPHRASE", PASSPHRASE)] {
            match (source, name) {
                (Source::Environment, "KEY") => rollout.workspace.set_env("GRIT_SSH_PRIVATE_KEY", value),
                (Source::Environment, _) => rollout.workspace.set_env("GRIT_SSH_PASSPHRASE", value),
                _ => rollout.workspace.set_env(format!("TF_VAR_{}", name.to_lowercase()), value),
            }
        }
        rollout.workspace.set_env("TF_LOG", "trace");
        rollout.set("ssh", json!({ "proxy_command": command })).unwrap();
        Self { rollout, key, seen, outputs: Vec::new() }
    }

    fn run(&mut self, arguments: &[&str], code: i32) {
        let run = self.rollout.workspace.run(arguments).unwrap();
        assert_eq!(run.code, Some(code), "{arguments:?}: {}\n{}", run.stdout, run.stderr);
        self.outputs.extend([run.stdout, run.stderr]);
    }

    /// Panics when something that was written holds a secret. A line of the key's text is as good as the whole.
    fn assert_hidden(&self) {
        let line = self.key.private.lines().nth(2).unwrap();
        let secrets = [PASSPHRASE, line];
        for output in &self.outputs {
            assert_free("an output", output, &secrets);
        }
        assert!(self.outputs.iter().any(|it| it.contains("[TRACE]")), "nothing was traced");
        let seen = fs::read_to_string(&self.seen).unwrap();
        assert!(seen.contains("PATH=") && seen.contains("terraform-provider-grit"), "{seen}");
        assert_free("the process of a command", &seen, &secrets);
    }

    /// The same for the state, its backup, and all other files of the workspace.
    fn assert_files_hidden(&self) {
        let line = self.key.private.lines().nth(2).unwrap();
        each_file(&self.rollout.workspace.root(), &mut |path, text| {
            assert_free(&path.display().to_string(), text, &[PASSPHRASE, line]);
        });
    }
}

fn assert_free(place: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        if let Some(at) = text.find(secret) {
            let from = text[..at].char_indices().rev().nth(200).map_or(0, |(index, _)| index);
            panic!("{place} holds a secret after: {}", &text[from..at]);
        }
    }
}

fn each_file(folder: &Path, check: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            each_file(&path, check);
        } else {
            check(&path, &String::from_utf8_lossy(&fs::read(&path).unwrap()));
        }
    }
}

fn stay_hidden(source: Source) {
    let mut secrets = Secrets::new(source);
    secrets.rollout.managers(&["m1-v1"]).unwrap();
    // Of a plan that is saved, the readable form is searched. It has the values of plain variables in it, which Terraform saves whatever
    // a provider does.
    secrets.run(&["plan", "-out=plan"], 0);
    if source != Source::Variable {
        secrets.run(&["show", "-json", "plan"], 0);
    }
    secrets.run(&["apply", "-auto-approve"], 0);
    // One that fails: a wrong passphrase, and then the way back.
    let name = if source == Source::Environment { "GRIT_SSH_PASSPHRASE" } else { "TF_VAR_passphrase" };
    secrets.rollout.workspace.set_env(name, format!("not-{PASSPHRASE}"));
    secrets.rollout.managers(&["m1-v2"]).unwrap();
    secrets.run(&["apply", "-auto-approve"], 1);
    secrets.rollout.workspace.set_env(name, PASSPHRASE);
    secrets.run(&["show", "-json"], 0);
    secrets.run(&["destroy", "-auto-approve"], 0);
    secrets.assert_hidden();
    secrets.assert_files_hidden();
}

#[test]
fn secrets_of_an_ephemeral_variable_stay_hidden() {
    stay_hidden(Source::Ephemeral);
}

#[test]
fn secrets_of_a_plain_variable_stay_hidden() {
    stay_hidden(Source::Variable);
}

#[test]
fn secrets_of_the_environment_stay_hidden() {
    stay_hidden(Source::Environment);
}

/// The documented exception: a key in the entry of a manager is in the state, because it is an attribute of a resource; but no output shows
/// it.
#[test]
fn a_key_in_the_entry_of_a_manager_is_in_the_state_and_in_no_output() {
    let mut rollout = Rollout::start().unwrap();
    let pem = rollout.lab.client_key().pem().unwrap();
    let line = pem.lines().nth(2).unwrap().to_owned();
    let main = fs::read_to_string(rollout.workspace.root().join("main.tf")).unwrap();
    let entry = "    ssh_key_pem     = file(var.key)\n    wrapper_address = lab_instance";
    let main = main.replace("    wrapper_address = lab_instance", entry) + "variable \"key\" {}\n";
    rollout.workspace.write("main.tf", &main).unwrap();
    rollout.workspace.set_env("TF_VAR_key", rollout.lab.client_key().path.as_os_str());
    rollout.set("ssh", json!({})).unwrap();
    rollout.managers(&["m1-v1"]).unwrap();
    let mut outputs = Vec::new();
    for arguments in [&["plan"][..], &["apply", "-auto-approve"], &["show"], &["destroy", "-auto-approve"]] {
        if arguments[0] == "destroy" {
            assert!(rollout.workspace.state().unwrap().text.contains(&line[..40]));
        }
        let run = rollout.workspace.run(arguments).unwrap().succeeded();
        outputs.extend([run.stdout, run.stderr]);
    }
    for output in outputs {
        assert_free("an output", &output, &[&line]);
    }
}
