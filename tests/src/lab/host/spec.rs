//! The properties of a host, and the command and files that follow from them.

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;

use super::{Queue, RUNNER, SOCKET, WRAPPER, ssh};
use crate::terraform;

/// The properties of a host. The default is a well-behaved one.
#[derive(Debug, Clone)]
pub struct HostSpec {
    /// The runner version that the stand-in emulates.
    pub runner_version: String,
    /// Maximum number of concurrent jobs.
    pub concurrent: usize,
    /// Maximum number of concurrent job requests of one section.
    pub request_concurrency: usize,
    /// The time in which each section has one turn. It is shorter than any of GitLab Runner, so that a runner without load gets a job soon.
    pub check_interval: Duration,
    /// How long the runner waits for its jobs in a forceful shutdown; `None` is its default.
    pub shutdown_timeout: Option<Duration>,
    /// The tokens of the `[[runners]]` sections; `None` is one section with a token named after the instance.
    pub tokens: Option<Vec<String>>,
    /// The URL of GitLab in every `[[runners]]` section; `None` is that of the lab's queue.
    pub url: Option<String>,
    /// More TOML of every `[[runners]]` section.
    pub section: String,
    /// Whether a configuration file exists.
    pub configured: bool,
    /// Whether the runner has an HTTP server (`/metrics` and others).
    pub listen: bool,
    /// Delay between creation and the start of the wrapper. SSH answers immediately.
    pub boot_takes: Duration,
    /// Options for `runner-stand-in run`, such as `--start-delay`.
    pub runner_options: Vec<String>,
    /// Options for `grit-wrapper run`.
    pub wrapper_options: Vec<String>,
    /// Path of the wrapper binary; `None` is the one built in this workspace.
    pub wrapper_program: Option<PathBuf>,
    /// The SSH server.
    pub ssh: ssh::Choice,
}

impl Default for HostSpec {
    fn default() -> HostSpec {
        HostSpec {
            runner_version: "19.2.0".to_owned(),
            concurrent: 4,
            request_concurrency: 1,
            check_interval: Duration::from_millis(100),
            shutdown_timeout: None,
            tokens: None,
            url: None,
            section: String::new(),
            configured: true,
            listen: true,
            boot_takes: Duration::ZERO,
            runner_options: Vec::new(),
            wrapper_options: Vec::new(),
            wrapper_program: None,
            ssh: ssh::Choice::default(),
        }
    }
}

impl HostSpec {
    /// A well-behaved host with this version of the runner.
    pub fn version(runner_version: &str) -> HostSpec {
        HostSpec { runner_version: runner_version.to_owned(), ..HostSpec::default() }
    }

    /// As a runner under load is configured: with GitLab Runner's default interval, and as many concurrent requests as its warnings recommend.
    pub fn under_load(mut self) -> HostSpec {
        self.check_interval = Duration::from_secs(3);
        self.request_concurrency = 4;
        self
    }

    /// Adds options for `runner-stand-in run`.
    pub fn runner(mut self, options: &[&str]) -> HostSpec {
        self.runner_options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Adds options for `grit-wrapper run`.
    pub fn wrapper(mut self, options: &[&str]) -> HostSpec {
        self.wrapper_options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// The command line of the host's wrapper.
    pub(super) fn command(
        &self,
        folder: &Path,
        runner: SocketAddr,
        queue: &str,
    ) -> anyhow::Result<Vec<OsString>> {
        let wrapper = match &self.wrapper_program {
            Some(path) => path.clone(),
            None => terraform::built(WRAPPER)?,
        };
        let socket = format!("unix://{}", folder.join(SOCKET).display());
        let mut command: Vec<OsString> =
            vec![wrapper.into(), "run".into(), "--grpc-listen".into(), socket.into()];
        command.extend(self.wrapper_options.iter().map(OsString::from));
        command.extend(["--".into(), terraform::built(RUNNER)?.into(), "run".into()]);
        command.extend(["--config".into(), folder.join("config.toml").into()]);
        command.extend(["--emulate-version".into(), OsString::from(&self.runner_version)]);
        command.extend(["--lab".into(), OsString::from(queue)]);
        if self.listen {
            command.extend(["--listen-address".into(), runner.to_string().into()]);
        }
        command.extend(self.runner_options.iter().map(OsString::from));
        Ok(command)
    }

    /// Writes the runner's `config.toml` and system id.
    pub(super) fn configure(&self, folder: &Path, instance_name: &str, queue: &Queue) -> anyhow::Result<()> {
        let write = |name: &str, text: String| {
            fs::write(folder.join(name), text).with_context(|| format!("write {name}"))
        };
        write(".runner_system_id", instance_name.to_owned())?;
        if !self.configured {
            return Ok(());
        }
        let tokens = self.tokens.clone().unwrap_or_else(|| vec![format!("glrt-{instance_name}")]);
        let interval = self.check_interval.as_secs_f64();
        let mut text = format!("concurrent = {}\ncheck_interval = {interval}\n", self.concurrent);
        if let Some(timeout) = self.shutdown_timeout {
            text += &format!("shutdown_timeout = {}\n", timeout.as_secs_f64());
        }
        let url = self.url.clone().unwrap_or_else(|| queue.url());
        for (number, token) in tokens.iter().enumerate() {
            let name =
                if number == 0 { instance_name.to_owned() } else { format!("{instance_name}-{number}") };
            text += &format!(
                "\n[[runners]]\n  name = \"{name}\"\n  id = {}\n  url = \"{url}\"\n  token = \"{token}\"\n  \
                 request_concurrency = {}\n{}\n",
                queue.runner_id(token),
                self.request_concurrency,
                self.section
            );
        }
        write("config.toml", text)
    }
}
