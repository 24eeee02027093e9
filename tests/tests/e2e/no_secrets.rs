//! Secrets of the provider block are in no file and no output of Terraform, in no command line, and in no child process of
//! the provider: with every connection method and every source of secrets.

mod processes;
mod saved_plan;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grit_tests::{
    lab::queue::Access,
    rollout::Rollout,
    sshd::{Agent, ClientKey, Sshd},
};
use processes::Watch;
use serde_json::{Value as Json, json};

/// The source of the secrets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Ephemeral,
    Variable,
    Environment,
}

/// The connection method.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Method {
    /// A bastion with a separate key.
    ProxyJump,
    ProxyCommand,
    /// It needs no secrets, and gets none.
    SshCommand,
    Agent,
}

/// A lab whose hosts accept an encrypted key, and all files and outputs of a Terraform run.
struct Secrets {
    rollout: Rollout,
    source: Source,
    method: Method,
    /// The attributes of the `ssh` object that are not secrets.
    ssh: Json,
    passphrase: String,
    /// A trigger of the health check, which the state contains because it is an attribute of a resource.
    token: String,
    /// The passphrase, and one line of each key.
    secrets: Vec<String>,
    /// The environment and arguments of a connection command.
    seen: PathBuf,
    outputs: Vec<(String, String)>,
    watch: Watch,
    _servers: (Option<Sshd>, Option<Agent>),
}

impl Secrets {
    fn new(source: Source, method: Method) -> Self {
        let mut rollout = Rollout::start().unwrap();
        let folder = rollout.lab.folder().to_owned();
        let unique = uuid::Uuid::new_v4();
        let (passphrase, token) =
            (format!("marker-of-the-passphrase-{unique}"), format!("marker-of-the-token-{unique}"));
        let key = encrypted(&folder, &rollout.lab.client_key().path, &passphrase);
        let hop_key = ClientKey::generate(&folder, "hop", "ed25519", &passphrase).unwrap();
        let plain = rollout.lab.client_key().pem().unwrap();
        let lines =
            [&key.private, &hop_key.private, &plain].map(|key| key.lines().nth(2).unwrap().to_owned());
        let gitlab_token = format!("marker-of-the-gitlab-token-{unique}");
        rollout.lab.queue().add_api_token(&gitlab_token, Access::Reporter);
        let secrets = [vec![passphrase.clone(), gitlab_token.clone()], lines.to_vec()].concat();

        let seen = folder.join("seen");
        let carry = |to: &str| {
            format!(
                "tr '\\0' '\\n' </proc/$$/environ >>{0}; tr '\\0' ' ' </proc/$$/cmdline >>{0}; \
                 tr '\\0' ' ' </proc/$PPID/cmdline >>{0}; exec {1} {to}",
                seen.display(),
                env!("CARGO_BIN_EXE_carry")
            )
        };
        let mut servers = (None, None);
        let ssh = match method {
            Method::ProxyJump => {
                let sshd = Sshd::builder().authorize(&hop_key).start().unwrap();
                let hop = json!({
                    "address": sshd.address().to_string(), "username": sshd.username(), "host_key": sshd.host_keys()[0],
                });
                servers.0 = Some(sshd);
                json!({ "proxy_jump": [hop] })
            }
            Method::ProxyCommand => {
                json!({ "proxy_command": ["sh", "-c", carry("tcp \"$1\" \"$2\""), "sh", "{{host}}", "{{port}}"] })
            }
            Method::SshCommand => {
                json!({ "ssh_command": ["sh", "-c", carry("unix \"$1\""), "sh", "{{wrapper_path}}"] })
            }
            Method::Agent => {
                let agent = Agent::start(&folder).unwrap();
                let public = rollout.lab.client_key();
                fs::write(public.path.with_extension("pub"), &public.public).unwrap();
                agent.add(&ClientKey::read(&public.path).unwrap()).unwrap();
                let ssh = json!({ "agent": { "socket": agent.socket() } });
                servers.1 = Some(agent);
                ssh
            }
        };

        let mut main = fs::read_to_string(rollout.workspace.root().join("main.tf")).unwrap();
        main = main.replace(
            "  stable_for       = var.health.stable_for",
            "  triggers = { token = var.token }\n  stable_for = var.health.stable_for",
        );
        let in_block = match (source, method) {
            (Source::Environment, _) => "{}",
            (_, Method::Agent) => "{ passphrase = var.passphrase }",
            (_, Method::ProxyJump) => {
                "{ private_key = var.private_key, passphrase = var.passphrase, \
                 proxy_jump = [merge(var.ssh.proxy_jump[0], { private_key = var.hop_key })] }"
            }
            _ => "{ private_key = var.private_key, passphrase = var.passphrase }",
        };
        let providers = fs::read_to_string(rollout.workspace.root().join("providers.tf")).unwrap();
        assert!(providers.contains("ssh = var.ssh"), "{providers}");
        let in_block = format!("ssh = merge(var.ssh, {in_block})");
        let url = rollout.lab.queue().url();
        let in_block = match source {
            Source::Environment => in_block,
            _ => format!("{in_block}\n  gitlab = {{ token = var.gitlab_token }}"),
        };
        rollout.workspace.set_env("GRIT_GITLAB_URL", url);
        let providers = providers.replace("ssh = var.ssh", &in_block);
        rollout.workspace.write("providers.tf", &providers).unwrap();
        main += "variable \"token\" {\n  sensitive = true\n}\n";
        let kind = if source == Source::Ephemeral { "ephemeral = true" } else { "" };
        for (name, value) in [
            ("private_key", &key.private),
            ("passphrase", &passphrase),
            ("hop_key", &hop_key.private),
            ("gitlab_token", &gitlab_token),
        ] {
            if source == Source::Environment {
                let group = match name {
                    "hop_key" => continue, // there is no variable for it
                    "gitlab_token" => "GRIT",
                    _ => "GRIT_SSH",
                };
                rollout.workspace.set_env(format!("{group}_{}", name.to_uppercase()), value);
            } else {
                main += &format!("variable \"{name}\" {{\n {kind}\n}}\n");
                rollout.workspace.set_env(format!("TF_VAR_{name}"), value);
            }
        }
        rollout.workspace.write("main.tf", &main).unwrap();
        rollout.workspace.set_env("TF_VAR_token", &token);
        rollout.workspace.set_env("TF_LOG", "trace");
        rollout.set("ssh", ssh.clone()).unwrap();
        rollout.set("drain", json!({ "attempts": 2 })).unwrap();
        let watched = [secrets.clone(), vec![token.clone()]].concat();
        let watch = Watch::start(rollout.workspace.providers(), watched);
        Self {
            rollout,
            source,
            method,
            ssh,
            passphrase,
            token,
            secrets,
            seen,
            outputs: Vec::new(),
            watch,
            _servers: servers,
        }
    }

    fn run(&mut self, arguments: &[&str], code: i32) {
        let run = self.rollout.workspace.run(arguments).unwrap();
        assert_eq!(run.code, Some(code), "{arguments:?}: {}\n{}", run.stdout, run.stderr);
        self.outputs.push((arguments.join(" "), run.stdout));
        self.outputs.push((arguments.join(" "), run.stderr));
    }

    /// Makes every connection fail, or restores them.
    fn connections(&mut self, work: bool) {
        let right = self.ssh.clone();
        match self.method {
            Method::SshCommand => {
                let failing = json!({ "ssh_command": ["sh", "-c", "echo no >&2; exit 3"] });
                self.rollout.set("ssh", if work { right } else { failing }).unwrap();
            }
            Method::Agent => {
                let mut other = right.clone();
                other["agent"]["identity"] = "SHA256:another".into();
                self.rollout.set("ssh", if work { right } else { other }).unwrap();
            }
            _ => {
                let in_block = if self.source == Source::Environment {
                    "GRIT_SSH_PASSPHRASE"
                } else {
                    "TF_VAR_passphrase"
                };
                let not = if work { "" } else { "not-" };
                self.rollout.workspace.set_env(in_block, format!("{not}{}", self.passphrase));
            }
        }
        let wait = if work { "60s" } else { "5s" };
        self.rollout.set("health", json!({ "create": wait, "update": wait })).unwrap();
    }

    /// A saved plan has the values of plain variables, which Terraform saves itself, and no other secret.
    fn assert_plan_hidden(&self) {
        let plan = fs::read(self.rollout.workspace.root().join("plan")).unwrap();
        let parts = saved_plan::parts(&plan);
        let holds = |secret: &str| {
            parts.iter().any(|(_, content)| content.windows(secret.len()).any(|it| it == secret.as_bytes()))
        };
        assert!(
            holds(&self.token),
            "nothing was read: {:?}",
            parts.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
        for secret in &self.secrets {
            assert!(self.source == Source::Variable || !holds(secret), "the plan holds {secret}");
        }
        assert_eq!(holds(&self.passphrase), self.source == Source::Variable);
    }

    /// Panics if a file or an output contains a secret.
    fn assert_hidden(self) {
        for (command, output) in &self.outputs {
            assert_free(command, output, &self.secrets);
            // `show -json` includes sensitive values.
            if !command.starts_with("show") {
                assert_free(command, output, std::slice::from_ref(&self.token));
            }
        }
        assert!(self.outputs.iter().any(|(_, it)| it.contains("[TRACE]")), "nothing was traced");
        assert!(
            self.outputs.iter().any(|(_, it)| it.contains("GitLab lists no running job of this manager")),
            "GitLab was not asked"
        );
        assert!(
            self.outputs.iter().any(|(_, it)| it.contains("SSH session established"))
                || self.method == Method::SshCommand
        );

        let starts_a_command = matches!(self.method, Method::ProxyCommand | Method::SshCommand);
        if starts_a_command {
            let seen = fs::read_to_string(&self.seen).unwrap();
            assert!(seen.contains("PATH=") && seen.contains("terraform-provider-grit"), "{seen}");
            assert_free("the process of a command", &seen, &self.secrets);
            assert_free("the process of a command", &seen, std::slice::from_ref(&self.token));
        }
        let seen = self.watch.end();
        assert!(!seen.providers.is_empty(), "no provider was seen");
        assert_eq!(starts_a_command, !seen.children.is_empty(), "{:?}", seen.children);
        assert!(seen.leaks.is_empty(), "{:?}", seen.leaks);

        // The state, its backups, and all other files of the workspace.
        each_file(&self.rollout.workspace.root(), &mut |path, text| {
            assert_free(&path.display().to_string(), text, &self.secrets);
        });
    }
}

/// The key of the hosts, encrypted.
fn encrypted(folder: &Path, plain: &Path, passphrase: &str) -> ClientKey {
    let path = folder.join("encrypted");
    fs::copy(plain, &path).unwrap();
    let keygen = Command::new("ssh-keygen")
        .args(["-q", "-p", "-P", "", "-N", passphrase, "-f"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(keygen.status.success(), "{}", String::from_utf8_lossy(&keygen.stderr));
    let public = Command::new("ssh-keygen").args(["-y", "-P", passphrase, "-f"]).arg(&path).output().unwrap();
    fs::write(folder.join("encrypted.pub"), public.stdout).unwrap();
    ClientKey::read(&path).unwrap()
}

fn assert_free(place: &str, text: &str, secrets: &[String]) {
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

fn stay_hidden(source: Source, method: Method) {
    let mut secrets = Secrets::new(source, method);
    secrets.rollout.managers(&["m1-v1"]).unwrap();
    secrets.run(&["plan", "-out=plan"], 0);
    secrets.assert_plan_hidden();
    // They depend on the variables, not on the connection.
    let is_shown = method == Method::ProxyCommand;
    if is_shown && source != Source::Variable {
        secrets.run(&["show", "-json", "plan"], 0);
    }
    secrets.run(&["apply", "-auto-approve"], 0);
    secrets.connections(false);
    secrets.rollout.managers(&["m1-v2"]).unwrap();
    secrets.run(&["apply", "-auto-approve"], 1);
    secrets.run(&["destroy", "-auto-approve"], 1);
    secrets.connections(true);
    if is_shown {
        secrets.run(&["show", "-json"], 0);
        secrets.run(&["show"], 0);
    }
    secrets.run(&["destroy", "-auto-approve"], 0);
    secrets.assert_hidden();
}

#[test]
fn secrets_of_ephemeral_variable_stay_hidden() {
    stay_hidden(Source::Ephemeral, Method::ProxyCommand);
}

#[test]
fn secrets_of_plain_variable_stay_hidden() {
    stay_hidden(Source::Variable, Method::ProxyCommand);
}

#[test]
fn secrets_of_environment_stay_hidden() {
    stay_hidden(Source::Environment, Method::ProxyCommand);
}

#[test]
fn secrets_of_bastion_stay_hidden() {
    stay_hidden(Source::Ephemeral, Method::ProxyJump);
}

#[test]
fn secrets_not_needed_by_ssh_command_stay_hidden() {
    stay_hidden(Source::Environment, Method::SshCommand);
}

#[test]
fn secrets_in_agent_stay_hidden() {
    stay_hidden(Source::Ephemeral, Method::Agent);
}

/// The documented exception: a key in the entry of a manager is in the state, because it is an attribute of a resource; but it is in
/// no output.
#[test]
fn ssh_key_pem_is_in_state_but_in_no_output() {
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
        assert_free("an output", &output, std::slice::from_ref(&line));
    }
}
