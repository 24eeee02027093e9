//! The flags of `grit-wrapper run`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;

use crate::{
    daemon::{
        callback::{AllowedUrls, UrlPrefix},
        serve::{
            http,
            listen::{self, Address, Rules, SocketAccess},
        },
        settings::{Settings, Target},
        unit_files,
    },
    runner::{self, Source},
    supervise::{Policy, UnitName},
    text::duration,
};

#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Address of the gRPC API: unix:///absolute/path or tcp://host:port. Can be repeated.
    #[arg(long, env = "GRIT_WRAPPER_GRPC_LISTEN", value_name = "URL", value_delimiter = ',', default_value = listen::DEFAULT_ADDRESS)]
    pub grpc_listen: Vec<Address>,

    /// Mode of the unix socket, in octal. Clients need write permission to connect.
    #[arg(long, env = "GRIT_WRAPPER_SOCKET_MODE", value_name = "MODE", value_parser = octal_mode, default_value = "0660")]
    pub socket_mode: u32,

    /// Group of the unix socket: group name or GID. Default: the wrapper's group.
    #[arg(long, env = "GRIT_WRAPPER_SOCKET_GROUP", value_name = "GROUP")]
    pub socket_group: Option<String>,

    /// Another unix socket of the gRPC API: unix:///absolute/path. Its clients can read the status, and cannot drain, cancel or start.
    /// Default: none.
    #[arg(long, env = "GRIT_WRAPPER_STATUS_LISTEN", value_name = "URL")]
    pub status_listen: Option<Address>,

    /// Mode of the socket of --status-listen, in octal.
    #[arg(long, env = "GRIT_WRAPPER_STATUS_SOCKET_MODE", value_name = "MODE", value_parser = octal_mode, default_value = "0660")]
    pub status_socket_mode: u32,

    /// Group of the socket of --status-listen: group name or GID. Default: the wrapper's group.
    #[arg(long, env = "GRIT_WRAPPER_STATUS_SOCKET_GROUP", value_name = "GROUP")]
    pub status_socket_group: Option<String>,

    /// Allow a --grpc-listen TCP address that other hosts can reach. Every client that can connect can then stop the runner.
    #[arg(long)]
    pub insecure_tcp_beyond_loopback: bool,

    /// Address of the HTTP server for metrics, health and the status: tcp://host:port. Default: no HTTP server.
    #[arg(long, env = "GRIT_WRAPPER_HTTP_LISTEN", value_name = "URL")]
    pub http_listen: Option<Address>,

    /// Allow an --http-listen address that other hosts can reach. Other hosts can read /metrics and /health only, without authentication.
    #[arg(long, env = "GRIT_WRAPPER_INSECURE_HTTP_BEYOND_LOOPBACK")]
    pub insecure_http_beyond_loopback: bool,

    /// Allowed URL prefix of shutdown callbacks. Can be repeated. Default: all URLs whose host does not have a loopback, link-local or
    /// metadata address.
    #[arg(long, env = "GRIT_WRAPPER_ALLOW_CALLBACK", value_name = "URL", value_delimiter = ',')]
    pub allow_callback: Vec<UrlPrefix>,

    /// Time between SIGTERM and SIGKILL in a forceful stop. SIGKILL is sent to the runner and all its processes. Default: 15s longer than
    /// `shutdown_timeout` in the runner's configuration, at least 45s.
    #[arg(long, env = "GRIT_WRAPPER_PROCESS_TERMINATION_TIMEOUT", value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse)]
    pub process_termination_timeout: Option<Duration>,

    /// Timeout of a drain that a signal to the wrapper started, or a stop of the unit. After this time the runner is stopped forcefully. Default: no
    /// timeout.
    #[arg(long, env = "GRIT_WRAPPER_DRAIN_TIMEOUT", value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse_limit)]
    pub drain_timeout: Option<Duration>,

    /// Minimum time between the runner's start and SIGQUIT or SIGHUP: these signals would kill a runner that has not yet installed its signal
    /// handlers.
    #[arg(long, env = "GRIT_WRAPPER_START_GRACE", value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse, default_value = "3s")]
    pub start_grace: Duration,

    /// Maximum time that a graceful drain waits until the runner has no open job request. SIGQUIT cancels open requests: a job that GitLab has
    /// just assigned would be lost. 0s: send SIGQUIT immediately.
    #[arg(long, env = "GRIT_WRAPPER_REQUEST_GAP_TIMEOUT", value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse, default_value = "60s")]
    pub request_gap_timeout: Duration,

    /// State file. The next wrapper with this file continues a drain, and does not start a runner beside a running one. Default: path of the first
    /// unix socket, plus `.state`. Without a unix socket: wrapper.state in `$RUNTIME_DIRECTORY`.
    #[arg(long, env = "GRIT_WRAPPER_STATE_FILE", value_name = "PATH")]
    pub state_file: Option<PathBuf>,

    /// Interval between probes of a healthy runner. The interval is shorter while the runner starts or drains.
    #[arg(long, env = "GRIT_WRAPPER_PROBE_INTERVAL", value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse, default_value = "5s")]
    pub probe_interval: Duration,

    /// Address of the runner's HTTP server, for a runner without an address. The wrapper passes it as LISTEN_ADDRESS, unless the runner's arguments,
    /// environment or configuration set an address when the wrapper starts.
    #[arg(long, env = "GRIT_WRAPPER_RUNNER_LISTEN_ADDRESS", value_name = "HOST:PORT")]
    pub runner_listen_address: Option<String>,

    /// Action of the wrapper when the runner has exited.
    #[arg(long, env = "GRIT_WRAPPER_WHEN_STOPPED", value_enum, default_value_t = WhenStopped::Stay)]
    pub when_stopped: WhenStopped,

    /// Command that `/bin/sh -c` executes after each exit of the runner, with the outcome in its environment: GRIT_RUNNER_EXIT_CODE,
    /// GRIT_DRAIN_OUTCOME, GRIT_DRAIN_ID and GRIT_DRAIN_REASON. The command is executed once. The exit of the wrapper waits for it, for at most 5m.
    #[arg(long, env = "GRIT_WRAPPER_ON_EXIT", value_name = "COMMAND")]
    pub on_exit: Option<String>,

    /// Log level: error, warn, info, debug or trace.
    #[arg(long, env = "GRIT_WRAPPER_LOG_LEVEL", value_name = "LEVEL", value_parser = level, default_value = "info")]
    pub log_level: LevelFilter,

    /// Attach to this unit of systemd, whose main process is the runner, instead of starting a command: the full name, such as gitlab-runner.service.
    /// The wrapper must be root.
    #[arg(long, value_name = "UNIT", conflicts_with = "command")]
    pub unit: Option<UnitName>,

    /// The runner's command, with its arguments.
    #[arg(last = true, required_unless_present = "unit", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What the wrapper does when the runner has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenStopped {
    /// Keep running and report state `stopped` until a signal arrives, as upstream's wrapper does.
    Stay,
    /// Exit with the runner's exit code, so that a container engine can restart the container. After a drain that a client has requested, keep running.
    Exit,
}

impl Run {
    /// The checks that involve more than one value.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(Address::Tcp(_)) = self.status_listen {
            return Err("--status-listen: expected unix:///absolute/path".to_owned());
        }
        if let Some(Address::Unix(_)) = self.http_listen {
            return Err("--http-listen: expected tcp://host:port".to_owned());
        }
        if self.unit.is_some() {
            let of_a_child = [
                (
                    "--runner-listen-address",
                    self.runner_listen_address.as_deref().is_some_and(|address| !address.is_empty()),
                ),
                ("--when-stopped", self.when_stopped != WhenStopped::Stay),
            ];
            if let Some((flag, _)) = of_a_child.iter().find(|(_, is_set)| *is_set) {
                return Err(format!(
                    "{flag} has no effect with --unit: systemd owns the runner; remove the flag or its variable"
                ));
            }
        }
        Ok(())
    }

    pub fn settings(&self) -> Settings {
        let (target, source) = match &self.unit {
            Some(unit) => (Target::Unit(unit.clone()), Source::of_process()),
            None => {
                let source = Source::new(&self.command, |name| std::env::var_os(name));
                (Target::Command(self.command.clone()), source)
            }
        };
        Settings {
            target,
            drain_at_start: false,
            grpc_listen: self.grpc_listen(),
            grpc_rules: Rules {
                access: SocketAccess { mode: self.socket_mode, group: self.socket_group.clone() },
                beyond_loopback: self.insecure_tcp_beyond_loopback,
                allowed_by: "--insecure-tcp-beyond-loopback",
            },
            status_listen: self.status_listen.clone(),
            status_rules: Rules {
                access: SocketAccess {
                    mode: self.status_socket_mode,
                    group: self.status_socket_group.clone(),
                },
                ..Rules::default()
            },
            http: self.http_listen.clone().map(|address| http::Settings {
                address,
                remote: self.insecure_http_beyond_loopback,
                remote_allowed_by: "--insecure-http-beyond-loopback",
            }),
            callbacks: AllowedUrls::new(self.allow_callback.clone()),
            policy: self.policy(),
            drain_timeout: self.drain_timeout,
            state_file: self.state_file.clone().or_else(|| self.unit.as_ref().map(unit_files::state_file)),
            health: runner::Settings { source, interval: self.probe_interval.max(MIN_INTERVAL) },
            on_exit: self.on_exit.clone().filter(|command| !command.is_empty()),
            runner_listen_address: self.runner_listen_address.clone().filter(|address| !address.is_empty()),
        }
    }

    /// The wrapper of a unit also listens on the socket of that unit, and by default only there.
    fn grpc_listen(&self) -> Vec<Address> {
        let Some(unit) = &self.unit else { return self.grpc_listen.clone() };
        let is_default = |address: &Address| address.to_string() == listen::DEFAULT_ADDRESS;
        let others = self.grpc_listen.iter().filter(|address| !is_default(address)).cloned();
        others.chain([unit_files::socket(unit)]).collect()
    }

    fn policy(&self) -> Policy {
        Policy {
            start_grace: self.start_grace,
            request_gap_timeout: self.request_gap_timeout,
            termination_timeout: self.process_termination_timeout,
            leave_when_stopped: self.when_stopped == WhenStopped::Exit,
            by_unit: self.unit.is_some(),
            ..Policy::default()
        }
    }
}

/// More frequent probes would load the runner.
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
