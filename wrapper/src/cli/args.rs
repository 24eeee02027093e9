//! Flags and environment, turned into typed settings. Each default is a constant where its type is, with its reason.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::LazyLock,
    time::Duration,
};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use tracing::level_filters::LevelFilter;

use crate::{
    cli,
    daemon::{
        access::{Access, CallbackTarget, Who},
        duration,
        health::{self, Source},
        http::{self, Label},
        listen::{Address, Rules, SocketAccess, Source as ListenOn},
    },
    supervise::{
        Leftovers, Policy, Restart, RestartWhen,
        process::{CommandLine, Linux},
    },
};

/// The commit of the source: what the builder gave as `GRIT_REVISION`, or what the build script found. Empty when it is not known.
pub const REVISION: &str = match option_env!("GRIT_REVISION") {
    Some(revision) => revision,
    None => "",
};

static VERSION: LazyLock<String> = LazyLock::new(|| version(REVISION));

/// What `--version` says behind the name.
fn version(revision: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if revision.is_empty() { version.to_owned() } else { format!("{version} ({revision})") }
}

/// Starts, monitors and drains gitlab-runner.
#[derive(Debug, Parser)]
#[command(name = "grit-wrapper", version = VERSION.as_str(), arg_required_else_help = true, max_term_width = 110)]
pub struct Settings {
    #[command(subcommand)]
    pub command: Command,
}

impl Settings {
    /// Reads this process' command line and environment.
    ///
    /// # Errors
    ///
    /// The code to exit with, when something there is wrong, or only help was wanted; people have been told.
    pub fn from_process() -> Result<Self, ExitCode> {
        Self::from_words(std::env::args_os()).map_err(|error| {
            // Nobody is left to be told that nobody could be told.
            let _told = error.print();
            let is_run = std::env::args().nth(1).is_some_and(|word| word == "run");
            let code = match error.exit_code() {
                // Where a script takes 2 for a wrapper that cannot be reached.
                2 if !is_run => 1,
                code => u8::try_from(code).unwrap_or(1),
            };
            ExitCode::from(code)
        })
    }

    pub(crate) fn from_words(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let settings = Self::try_parse_from(words)?;
        if let Command::Run(run) = &settings.command {
            run.check().map_err(|why| Self::command().error(ErrorKind::ValueValidation, why))?;
        }
        Ok(settings)
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command under supervision: `grit-wrapper run -- gitlab-runner run`.
    Run(Box<Run>),
    #[command(flatten)]
    Operator(cli::Command),
}

#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Address of the gRPC API: unix:///absolute/path, tcp://host:port, or fd:// for sockets passed by systemd (fd://NAME for sockets with
    /// that name). Can be repeated.
    #[arg(long, env = "GRIT_WRAPPER_GRPC_LISTEN", value_name = "URL", value_delimiter = ',', default_value = Run::GRPC_LISTEN)]
    pub grpc_listen: Vec<ListenOn>,

    /// Mode of the unix socket, in octal. Clients need write permission to connect.
    #[arg(long, env = "GRIT_WRAPPER_SOCKET_MODE", value_name = "MODE", value_parser = octal_mode, default_value = "0660")]
    pub socket_mode: u32,

    /// Owner of the unix socket: user name or UID. Default: the wrapper's user.
    #[arg(long, env = "GRIT_WRAPPER_SOCKET_OWNER", value_name = "USER")]
    pub socket_owner: Option<String>,

    /// Group of the unix socket: group name or GID. Default: the wrapper's group.
    #[arg(long, env = "GRIT_WRAPPER_SOCKET_GROUP", value_name = "GROUP")]
    pub socket_group: Option<String>,

    /// Allow a --grpc-listen TCP address that other hosts can reach. Every client that can connect can then stop the runner.
    #[arg(long)]
    pub insecure_tcp_beyond_loopback: bool,

    /// Address of the HTTP server for metrics and REST: tcp://host:port. Default: no HTTP server.
    #[arg(long, env = "GRIT_WRAPPER_HTTP_LISTEN", value_name = "URL")]
    pub http_listen: Option<Address>,

    /// Allow an --http-listen address that other hosts can reach. Other hosts can read /metrics only; with `=all` they have the same access
    /// as local clients, without authentication.
    #[arg(long, value_name = "WHAT", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "metrics")]
    pub insecure_http_beyond_loopback: Option<Beyond>,

    /// Enable drain, cancel and start over HTTP. Every client that can connect can then use them.
    #[arg(long)]
    pub http_allow_control: bool,

    /// Label of the metric grit_wrapper_info, for example deployment_version=v2. Can be repeated.
    #[arg(long, env = "GRIT_WRAPPER_LABEL", value_name = "NAME=VALUE", value_delimiter = ',')]
    pub label: Vec<Label>,

    /// User or @group that can drain, cancel and start. If --allow-control or --allow-read is set, only the listed users, root and the
    /// wrapper's user have access.
    #[arg(long, env = "GRIT_WRAPPER_ALLOW_CONTROL", value_name = "WHO", value_delimiter = ',')]
    pub allow_control: Vec<Who>,

    /// User or @group with read-only access.
    #[arg(long, env = "GRIT_WRAPPER_ALLOW_READ", value_name = "WHO", value_delimiter = ',')]
    pub allow_read: Vec<Who>,

    /// Allowed URL prefix of shutdown callbacks. Can be repeated. Default: all URLs are allowed.
    #[arg(long, env = "GRIT_WRAPPER_ALLOW_CALLBACK", value_name = "URL", value_delimiter = ',')]
    pub allow_callback: Vec<CallbackTarget>,

    /// Time between SIGTERM and SIGKILL in a forceful stop. SIGKILL is sent to the runner and all its processes.
    #[arg(long, env = "GRIT_WRAPPER_PROCESS_TERMINATION_TIMEOUT", value_name = "DURATION", value_parser = duration::parse, default_value = "45s")]
    pub process_termination_timeout: Duration,

    /// Timeout of a drain that a signal to the wrapper started. After it the runner is stopped forcefully. Default: no timeout.
    #[arg(long, env = "GRIT_WRAPPER_DRAIN_TIMEOUT", value_name = "DURATION", value_parser = duration::parse_limit)]
    pub drain_timeout: Option<Duration>,

    /// Delay of SIGQUIT and SIGHUP after the runner's start. The runner would exit on them before its signal handlers are installed.
    #[arg(long, env = "GRIT_WRAPPER_START_GRACE", value_name = "DURATION", value_parser = duration::parse, default_value = "3s")]
    pub start_grace: Duration,

    /// State file, from which the next wrapper adopts the running runner. Default: path of the first unix socket, plus `.state`.
    #[arg(long, env = "GRIT_WRAPPER_STATE_FILE", value_name = "PATH")]
    pub state_file: Option<PathBuf>,

    /// Minimum uptime of a runner with health level `process`.
    #[arg(long, env = "GRIT_WRAPPER_MIN_UPTIME", value_name = "DURATION", value_parser = duration::parse, default_value = "2s")]
    pub min_uptime: Duration,

    /// Minimum number of `[[runners]]` sections for health level `ready`.
    #[arg(long, env = "GRIT_WRAPPER_MIN_RUNNERS", value_name = "COUNT", default_value_t = 1)]
    pub min_runners: usize,

    /// Interval between probes of a healthy runner; shorter while it starts or drains.
    #[arg(long, env = "GRIT_WRAPPER_PROBE_INTERVAL", value_name = "DURATION", value_parser = duration::parse, default_value = "5s")]
    pub probe_interval: Duration,

    /// Address of the runner's HTTP server. It is passed as LISTEN_ADDRESS, unless the runner's arguments or environment set an address.
    #[arg(long, env = "GRIT_WRAPPER_RUNNER_LISTEN_ADDRESS", value_name = "HOST:PORT")]
    pub runner_listen_address: Option<String>,

    /// Restart policy for a runner that exits unexpectedly.
    #[arg(long, env = "GRIT_WRAPPER_RESTART", value_enum, default_value_t = RestartWhen::Never)]
    pub restart: RestartWhen,

    /// Delay before the first restart; it doubles with each consecutive failure.
    #[arg(long, env = "GRIT_WRAPPER_RESTART_DELAY", value_name = "DURATION", value_parser = duration::parse, default_value = "1s")]
    pub restart_delay: Duration,

    /// Maximum delay before a restart.
    #[arg(long, env = "GRIT_WRAPPER_RESTART_MAX_DELAY", value_name = "DURATION", value_parser = duration::parse, default_value = "60s")]
    pub restart_max_delay: Duration,

    /// Action for processes, such as jobs, that are still running after the runner exited: log or kill them. A forceful stop always kills
    /// them.
    #[arg(long, env = "GRIT_WRAPPER_LEFTOVER_PROCESSES", value_enum, default_value_t = Leftovers::Report)]
    pub leftover_processes: Leftovers,

    /// Health level at which READY=1 is sent to systemd (`Type=notify`).
    #[arg(long, env = "GRIT_WRAPPER_READY_WHEN", value_enum, default_value_t = ReadyWhen::Process)]
    pub ready_when: ReadyWhen,

    /// Action of the wrapper when the runner has exited and is not restarted.
    #[arg(long, env = "GRIT_WRAPPER_WHEN_STOPPED", value_enum, default_value_t = WhenStopped::Stay)]
    pub when_stopped: WhenStopped,

    /// Log level: error, warn, info, debug or trace.
    #[arg(long, env = "GRIT_WRAPPER_LOG_LEVEL", value_name = "LEVEL", value_parser = level, default_value = "info")]
    pub log_level: LevelFilter,

    /// Command to run, with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Access of HTTP clients on other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beyond {
    /// Other hosts can read /metrics.
    Metrics,
    /// Other hosts have the same access as local clients.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenStopped {
    /// Keep running and report state `stopped` until a signal arrives, as upstream's wrapper does.
    Stay,
    /// Exit with the runner's exit code, so that a service manager can restart the wrapper.
    Exit,
}

/// Health level at which READY=1 is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadyWhen {
    /// The runner's process is running.
    Process,
    /// The runner is ready for jobs.
    Ready,
    /// GitLab accepts the runner's job requests.
    Polling,
}

impl ReadyWhen {
    #[must_use]
    pub fn level(self) -> health::Level {
        match self {
            Self::Process => health::Level::Process,
            Self::Ready => health::Level::Ready,
            Self::Polling => health::Level::Polling,
        }
    }
}

impl Run {
    /// The path that GRIT's modules give to upstream's wrapper. Upstream's own default is tcp://localhost:7777, which every local
    /// process, a CI job included, can use to stop the runner.
    pub const GRPC_LISTEN: &'static str = "unix:///var/run/gitlab-runner-wrapper.sock";

    /// What no flag can tell alone.
    fn check(&self) -> Result<(), String> {
        if let Some(name) = http::twice(&self.label) {
            return Err(format!("--label: {name} is given twice"));
        }
        match &self.http_listen {
            Some(Address::Unix(_)) => Err("--http-listen: expected tcp://host:port".to_owned()),
            Some(Address::Tcp(_)) | None => Ok(()),
        }
    }

    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            start_grace: self.start_grace,
            termination_timeout: self.process_termination_timeout,
            restart: Restart {
                when: self.restart,
                first_delay: self.restart_delay,
                max_delay: self.restart_max_delay,
                ..Restart::default()
            },
            leftovers: self.leftover_processes,
            leave_when_stopped: self.when_stopped == WhenStopped::Exit,
            ..Policy::default()
        }
    }

    /// Where the next wrapper finds the runner: beside the first unix socket that was bound, unless it was said.
    #[must_use]
    pub fn state_file(&self, socket: Option<&Path>) -> Option<PathBuf> {
        self.state_file.clone().or_else(|| {
            let mut path = socket?.as_os_str().to_owned();
            path.push(".state");
            Some(PathBuf::from(path))
        })
    }

    /// How the runner is asked for its health.
    #[must_use]
    pub fn probes(&self) -> health::Settings {
        let mut source = self.source();
        source.listen_address = source.listen_address.or_else(|| self.runner_listen_address.clone());
        health::Settings {
            source,
            min_uptime: self.min_uptime,
            min_sections: self.min_runners,
            interval: self.probe_interval.max(MIN_INTERVAL),
        }
    }

    /// How the runner is started; `gated` where there is a state file to write it down in before.
    #[must_use]
    pub fn platform(&self, command: CommandLine, gated: bool) -> Linux {
        let mut platform = Linux::new(command).marked();
        if gated {
            platform = platform.gated();
        }
        if let (None, Some(address)) = (self.source().listen_address, &self.runner_listen_address) {
            platform = platform.env("LISTEN_ADDRESS", address);
        }
        platform
    }

    fn source(&self) -> Source {
        Source::new(self.command.get(1..).unwrap_or_default(), |name| std::env::var_os(name))
    }

    #[must_use]
    pub fn access(&self) -> Access {
        Access::new(self.allow_control.clone(), self.allow_read.clone(), self.allow_callback.clone())
    }

    #[must_use]
    pub fn listen_rules(&self) -> Rules {
        Rules {
            access: SocketAccess {
                mode: self.socket_mode,
                owner: self.socket_owner.clone(),
                group: self.socket_group.clone(),
            },
            beyond_loopback: self.insecure_tcp_beyond_loopback,
            allowed_by: "--insecure-tcp-beyond-loopback",
        }
    }

    /// As [`Run::listen_rules`], for HTTP.
    #[must_use]
    pub fn http_rules(&self) -> Rules {
        Rules {
            beyond_loopback: self.insecure_http_beyond_loopback.is_some(),
            allowed_by: "--insecure-http-beyond-loopback",
            ..Rules::default()
        }
    }
}

/// Asking more often would cost the runner more than it tells us.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

fn octal_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "expected an octal mode from 0000 to 0777, such as 0660".to_owned())
}

fn level(text: &str) -> Result<LevelFilter, String> {
    match text.to_ascii_lowercase().as_str() {
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err("expected error, warn, info, debug or trace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<Run, clap::Error> {
        let words = ["grit-wrapper", "run"].iter().chain(args).copied();
        Settings::from_words(words).map(|settings| match settings.command {
            Command::Run(run) => *run,
            Command::Operator(command) => panic!("{command:?}"),
        })
    }

    #[test]
    fn clap_definition_is_consistent() {
        Settings::command().debug_assert();
    }

    #[test]
    fn flag_defaults_match_constants() {
        let run = run(&["--", "true"]).unwrap();
        assert_eq!(run.policy(), Policy::default());
        assert_eq!(run.listen_rules().access, SocketAccess::default());
        assert!(!run.insecure_tcp_beyond_loopback);
        assert_eq!(run.insecure_http_beyond_loopback, None);
        assert_eq!(run.grpc_listen, [Run::GRPC_LISTEN.parse().unwrap()]);
        assert_eq!(run.probes().min_uptime, health::Settings::MIN_UPTIME);
        assert_eq!(run.probes().interval, health::Settings::INTERVAL);
        assert_eq!(run.drain_timeout, None);
        assert_eq!(run.when_stopped, WhenStopped::Stay);
    }

    #[test]
    fn http_and_grpc_beyond_loopback_have_separate_flags() {
        let allowed = |flag: &str| {
            let run = run(&[flag, "--", "true"]).unwrap();
            let (grpc, http) = (run.listen_rules().beyond_loopback, run.http_rules().beyond_loopback);
            (grpc, http, run.insecure_http_beyond_loopback)
        };
        assert_eq!(allowed("--insecure-tcp-beyond-loopback"), (true, false, None));
        assert_eq!(allowed("--insecure-http-beyond-loopback"), (false, true, Some(Beyond::Metrics)));
        assert_eq!(allowed("--insecure-http-beyond-loopback=all"), (false, true, Some(Beyond::All)));
        assert!(run(&["--insecure-http-beyond-loopback=none", "--", "true"]).is_err());
    }

    #[test]
    fn version_includes_known_revision() {
        let number = env!("CARGO_PKG_VERSION");
        assert_eq!(version(""), number);
        assert_eq!(version("0123456789ab"), format!("{number} (0123456789ab)"));
        let printed = Settings::command().render_version();
        assert_eq!(printed.trim_end(), format!("grit-wrapper {}", version(REVISION)));
    }

    #[test]
    fn upstream_flags_are_accepted() {
        let run = run(&[
            "--grpc-listen",
            "tcp://localhost:7777",
            "--process-termination-timeout",
            "3h",
            "--",
            "gitlab-runner",
            "run",
            "--config",
            "/etc/x",
        ])
        .unwrap();
        assert_eq!(run.process_termination_timeout, Duration::from_secs(3 * 3600));
        assert_eq!(run.command, ["gitlab-runner", "run", "--config", "/etc/x"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (args, flag) in [
            (&["--grpc-listen", "localhost:7777", "--", "x"][..], "--grpc-listen"),
            (&["--socket-mode", "0999", "--", "x"], "--socket-mode"),
            (&["--socket-mode", "7777", "--", "x"], "--socket-mode"),
            (&["--process-termination-timeout", "10", "--", "x"], "--process-termination-timeout"),
            (&["--drain-timeout=-1s", "--", "x"], "--drain-timeout"),
            (&["--drain-timeout=0", "--", "x"], "omit the flag for no limit"),
            (&["--grpc-listen", "fd", "--", "x"], "or fd://"),
            (&["--http-listen", "unix:///run/x", "--", "x"], "--http-listen"),
            (&["--start-grace", "soon", "--", "x"], "--start-grace"),
            (&["--when-stopped", "restart", "--", "x"], "--when-stopped"),
            (&["--allow-control", "no-such-user", "--", "x"], "--allow-control"),
            (&["--allow-read", "@no-such-group", "--", "x"], "--allow-read"),
            (&["--allow-callback", "ci.example", "--", "x"], "--allow-callback"),
            (&["--restart", "maybe", "--", "x"], "--restart"),
            (&["--label", "shard", "--", "x"], "--label"),
            (&["--label=shard=a", "--label=shard=b", "--", "x"], "--label: shard is given twice"),
            (&["--log-level", "loud", "--", "x"], "--log-level"),
            (&["--no-such-flag", "--", "x"], "--no-such-flag"),
            (&[], "COMMAND"),
        ] {
            let error = run(args).unwrap_err().to_string();
            assert!(error.contains(flag), "{args:?}: {error}");
        }
    }
}
