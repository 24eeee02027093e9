//! A configuration in an isolated workspace.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use serde_json::Value as Json;
use tempfile::TempDir;

use super::{Ended, Event, Processes, Session, State, binaries};
use crate::lab_provider::journal::{self, Entry};

/// The commands that support `-no-color`.
const PRINTING: [&str; 10] =
    ["apply", "destroy", "get", "import", "init", "plan", "refresh", "show", "test", "validate"];

/// A directory with a Terraform configuration, a home, temporary files and plugins. Dropping it removes all of them.
///
/// Of the machine's environment Terraform gets only `PATH`, so that a test has the same result everywhere.
#[derive(Debug)]
pub struct Workspace {
    folder: TempDir,
    terraform: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

/// The result of a command.
#[derive(Debug, Clone)]
pub struct Run {
    /// The exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// The `-json` output; empty without `-json`.
    pub events: Vec<Event>,
}

impl Workspace {
    /// An empty configuration that can require the named providers of the last build: `lab` is `runner-tools/lab`, whose
    /// program is `terraform-provider-lab`. `aws` and `local` are the stand-ins for `hashicorp/aws` and `hashicorp/local`, which are the
    /// program of `lab`.
    ///
    /// No `init` is needed, unless the configuration has modules: then [`get`](Self::get) installs them.
    ///
    /// # Errors
    ///
    /// If Terraform or a provider's program is missing.
    pub fn new(providers: &[&str]) -> anyhow::Result<Self> {
        let terraform = binaries::terraform()?;
        let folder = tempfile::Builder::new().prefix("grit-ws-").tempdir().context("making a workspace")?;
        let root = folder.path();
        for part in ["root", "home", "tmp", "plugins"] {
            fs::create_dir(root.join(part)).with_context(|| format!("making {part}"))?;
        }
        let mut overrides = String::new();
        for name in providers {
            let program = format!("terraform-provider-{name}");
            let public = matches!(*name, "aws" | "kubernetes" | "local");
            let built = binaries::built(if public { "terraform-provider-lab" } else { &program })?;
            symlink(built, root.join("plugins").join(&program))
                .with_context(|| format!("linking {program}"))?;
            let namespace = if public { "hashicorp" } else { "runner-tools" };
            overrides += &format!("\"{namespace}/{name}\" = \"{}\"\n", root.join("plugins").display());
        }
        // No other provider can be installed, so that no test depends on a network.
        let rc = format!(
            "provider_installation {{\n  dev_overrides {{\n{overrides}}}\n  filesystem_mirror {{\n    path = \"{}\"\n  }}\n}}\n",
            root.join("home").display()
        );
        fs::write(root.join("terraform.rc"), rc).context("writing the CLI configuration")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let environment = [
            ("PATH", path),
            ("HOME", root.join("home").into()),
            ("TMPDIR", root.join("tmp").into()),
            ("TF_CLI_CONFIG_FILE", root.join("terraform.rc").into()),
            ("TF_DATA_DIR", root.join("home/data").into()),
            ("TF_IN_AUTOMATION", "1".into()),
            ("TF_INPUT", "0".into()),
            ("CHECKPOINT_DISABLE", "1".into()),
            (journal::VARIABLE, root.join("journal").into()),
        ];
        let mut environment = environment.map(|(name, value)| (name.into(), value)).to_vec();
        // `cargo xtask test` sets them.
        let go = ["GOGC", "GOMEMLIMIT"].map(|name| std::env::var_os(name).map(|value| (name.into(), value)));
        environment.extend(go.into_iter().flatten());
        environment
            .extend(PRINTING.map(|command| (format!("TF_CLI_ARGS_{command}").into(), "-no-color".into())));
        Ok(Self { folder, terraform, environment })
    }

    /// Sets a variable for all later commands.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.set_env(name, value);
        self
    }

    /// Sets a variable for all later commands.
    pub fn set_env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        let name = name.into();
        self.environment.retain(|(known, _)| *known != name);
        self.environment.push((name, value.into()));
    }

    /// Writes a file of the configuration, and creates its directories.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let path = self.root().join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// The directory of the configuration.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// The directory for temporary files, including providers' sockets.
    pub fn tmp(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// Installs modules that the configuration names by path.
    ///
    /// # Errors
    ///
    /// If the command cannot be started; its result is in the [`Run`]. The same applies to the commands below.
    pub fn get(&self) -> anyhow::Result<Run> {
        self.run(["get"])
    }

    /// `validate`, with the findings as [`Event::Diagnostic`]s.
    pub fn validate(&self) -> anyhow::Result<Run> {
        let mut run = self.run(["validate", "-json"])?;
        let report: Json = serde_json::from_str(&run.stdout).context("reading the output of validate")?;
        let findings = report["diagnostics"].as_array().cloned().unwrap_or_default();
        let lines = findings.into_iter().map(|finding| {
            serde_json::json!({"type": "diagnostic", "diagnostic": finding}).to_string() + "\n"
        });
        run.events = Event::parse_all(&lines.collect::<String>());
        Ok(run)
    }

    /// `plan -json -out=plan`.
    pub fn plan(&self) -> anyhow::Result<Run> {
        self.run(["plan", "-json", "-out=plan"])
    }

    /// `apply -json` of the configuration.
    pub fn apply(&self) -> anyhow::Result<Run> {
        self.run(["apply", "-json", "-auto-approve"])
    }

    /// `destroy -json`.
    pub fn destroy(&self) -> anyhow::Result<Run> {
        self.run(["destroy", "-json", "-auto-approve"])
    }

    /// `show -json` of a saved plan (by path), or of the state (`None`).
    pub fn show(&self, plan: Option<&str>) -> anyhow::Result<Json> {
        let run = self.run(["show", "-json"].into_iter().chain(plan))?;
        anyhow::ensure!(run.code == Some(0), "show failed: {}", run.stderr);
        serde_json::from_str(&run.stdout).context("reading the output of show")
    }

    /// Runs any command.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> anyhow::Result<Run> {
        let output = self
            .command(arguments)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("running {}", self.terraform.display()))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Run { code: output.status.code(), events: Event::parse_all(&stdout), stdout, stderr })
    }

    /// Starts any command in a separate terminal: see [`Session`].
    pub fn start<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> anyhow::Result<Session> {
        Session::start(&self.command(arguments))
    }

    /// The environment of the commands.
    pub fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.environment.iter().cloned()
    }

    /// A command that has not been started.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.command_through(&[], arguments)
    }

    /// A command that another program starts: `prlimit`, for example.
    pub fn command_through<A: AsRef<OsStr>>(
        &self,
        through: &[&str],
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut words = through.iter().map(OsStr::new).chain([self.terraform.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(arguments).current_dir(self.root());
        command.env_clear().envs(self.environment());
        command
    }

    /// The state on disk.
    ///
    /// # Errors
    ///
    /// If it exists and cannot be read.
    pub fn state(&self) -> anyhow::Result<State> {
        State::read(&self.root().join("terraform.tfstate")).context("reading the state")
    }

    /// The journal of the provider `lab`.
    pub fn journal(&self) -> Vec<Entry> {
        journal::read(&self.folder.path().join("journal"))
    }

    /// Waits until the provider `lab` has written `count` events of that name, and returns them.
    ///
    /// Panics after `limit`.
    #[track_caller]
    pub fn wait_for(&self, event: &str, count: usize, limit: Duration) -> Vec<Entry> {
        crate::poll::until(&format!("{count} x {event} in the journal"), limit, || {
            let (found, others): (Vec<_>, Vec<_>) =
                self.journal().into_iter().partition(|entry| entry.event == event);
            if found.len() >= count { Ok(found) } else { Err((found.len(), others)) }
        })
    }

    /// The processes of this workspace's providers.
    pub fn providers(&self) -> Processes {
        Processes::started_from(&self.folder.path().join("plugins"))
    }

    /// The path of a provider's program in this workspace.
    pub fn provider_program(&self, name: &str) -> PathBuf {
        self.folder.path().join("plugins").join(format!("terraform-provider-{name}"))
    }

    /// A provider's program with the environment of this workspace.
    pub fn provider(&self, name: &str) -> Command {
        let mut command = Command::new(self.provider_program(name));
        command.env_clear().envs(self.environment.iter().cloned());
        command
    }

    /// The directory of the workspace.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl From<Ended> for Run {
    /// A terminal has both streams as one.
    fn from(ended: Ended) -> Self {
        let (code, stdout) = (ended.code, ended.output);
        Self { code, events: Event::parse_all(&stdout), stdout, stderr: String::new() }
    }
}

impl Run {
    /// The operations in the order of their events, as `start create lab_probe.p`, `complete …`, `error …`.
    pub fn timeline(&self) -> Vec<String> {
        let line = |event: &Event| {
            let word = match event {
                Event::ApplyStart(_) => "start",
                Event::ApplyComplete(_) => "complete",
                Event::ApplyErrored(_) => "error",
                _ => return None,
            };
            let hook = event.hook()?;
            Some(format!("{word} {} {}", hook.action, hook.address))
        };
        self.events.iter().filter_map(line).collect()
    }

    /// The planned changes, as `update lab_probe.p`, sorted, because Terraform's order varies.
    /// No-ops are omitted.
    pub fn planned(&self) -> Vec<String> {
        let line = |event: &Event| match event {
            Event::PlannedChange { address, action } => Some(format!("{action} {address}")),
            _ => None,
        };
        let mut planned: Vec<_> = self.events.iter().filter_map(line).collect();
        planned.sort();
        planned
    }

    /// The errors: summary and detail.
    pub fn errors(&self) -> Vec<(&str, &str)> {
        self.diagnostics(super::Severity::Error)
    }

    /// The warnings: summary and detail, without the one about development overrides, which every command prints.
    pub fn warnings(&self) -> Vec<(&str, &str)> {
        let mut warnings = self.diagnostics(super::Severity::Warning);
        warnings.retain(|(summary, _)| !summary.contains("development overrides"));
        warnings
    }

    /// Panics with the whole output if the command failed.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "the command failed:\n{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Panics with the whole output if the exit status is not 1.
    #[track_caller]
    pub fn failed(self) -> Self {
        assert_eq!(self.code, Some(1), "the command did not fail:\n{}\n{}", self.stdout, self.stderr);
        self
    }

    fn diagnostics(&self, wanted: super::Severity) -> Vec<(&str, &str)> {
        let line = |event| match event {
            &Event::Diagnostic { severity, ref summary, ref detail, .. } if severity == wanted => {
                Some((summary.as_str(), detail.as_str()))
            }
            _ => None,
        };
        self.events.iter().filter_map(line).collect()
    }
}
