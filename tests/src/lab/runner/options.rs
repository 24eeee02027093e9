//! The command-line options of the stand-in.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use super::JobProcess;

/// The options of `run`. The first six are GitLab Runner's; the others inject faults.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    #[arg(long, short, env = "CONFIG_FILE", default_value = "/etc/gitlab-runner/config.toml")]
    pub config: PathBuf,
    /// Overrides the configuration file.
    #[arg(long, env = "LISTEN_ADDRESS")]
    pub listen_address: Option<String>,
    /// Accepted for compatibility; without effect, because jobs have no files.
    #[arg(long, short = 'd')]
    pub working_directory: Option<PathBuf>,
    /// Accepted for compatibility: the name in log lines.
    #[arg(long, short = 'n')]
    pub service: Option<String>,
    /// Accepted for compatibility; without effect, because jobs have no shell.
    #[arg(long, short = 'u')]
    pub user: Option<String>,
    /// Accepted for compatibility; without effect, because the log goes to stderr.
    #[arg(long)]
    pub syslog: bool,
    /// The version to emulate. It determines which endpoints exist.
    #[arg(long, default_value = "19.2.0")]
    pub emulate_version: Version,
    /// Delay before any other step.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub start_delay: Duration,
    /// Delay between the start of the HTTP server and the installation of the signal handlers.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub handlers_after: Duration,
    /// How long `/health/ready` returns 503.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub boot_verify: Duration,
    /// The response of `/metrics`.
    #[arg(long, value_enum, default_value_t)]
    pub metrics: Metrics,
    /// The job router, which sections with `FF_USE_JOB_ROUTER` use.
    #[arg(long, value_enum, default_value_t)]
    pub job_router: JobRouter,
    /// Makes the boot verification fail: exit 1.
    #[arg(long)]
    pub boot_verify_fails: bool,
    /// Delay between the last job and the exit.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub executor_shutdown: Duration,
    /// How long aborting a job takes.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0ms")]
    pub abort_takes: Duration,
    /// Delay between the first two attempts to report the end of a job. It doubles with each further attempt. GitLab Runner has one second.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "200ms")]
    pub report_retry: Duration,
    /// Delay after each failed attempt, also after the last one. GitLab Runner has three seconds.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "600ms")]
    pub update_interval: Duration,
    /// Runs each job as a separate process group, which gets SIGTERM when the job is aborted.
    #[arg(long, value_enum)]
    pub job_process: Option<JobProcess>,
    /// Exit code of a crash.
    #[arg(long, requires = "crash_after")]
    pub crash_code: Option<i32>,
    /// Delay between process state `running` and the crash.
    #[arg(long, value_parser = humantime::parse_duration, requires = "crash_code")]
    pub crash_after: Option<Duration>,
    /// URL of the job queue, to which the stand-in reports its events.
    #[arg(long, env = "LAB_URL")]
    pub lab: Option<String>,
}

/// The response of `/metrics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Metrics {
    #[default]
    Full,
    /// Metrics of another exporter.
    Foreign,
    /// Status 500.
    Broken,
    /// No response.
    Silent,
}

/// The job router.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum JobRouter {
    #[default]
    Up,
    /// It cannot be reached: the circuit breaker opens, and requests go to GitLab directly.
    Down,
}

/// A version of GitLab Runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Version {
    pub(super) fn has_process_state(self) -> bool {
        (self.major, self.minor) >= (19, 1)
    }

    /// Whether the labels of metrics lack the partition of a token: `t3_` of `glrt-t3_…`.
    pub(super) fn hides_partitions(self) -> bool {
        (self.major, self.minor) >= (18, 2)
    }

    /// Whether variables are expanded in the tokens of the configuration.
    pub(super) fn expands_tokens(self) -> bool {
        (self.major, self.minor) >= (18, 10)
    }

    /// Whether it accepts jobs in a second request: the two-phase commit.
    pub(super) fn has_two_phase_job_commit(self) -> bool {
        (self.major, self.minor) >= (18, 5)
    }

    /// Whether `job_status_final_update_retry_limit` exists. Before, there are 10 attempts, and the delays do not exceed five times the first.
    pub(super) fn has_report_limit(self) -> bool {
        (self.major, self.minor) >= (17, 9)
    }

    pub(super) fn has_health_ready(self) -> bool {
        (self.major, self.minor) >= (19, 2)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Version, String> {
        let mut parts = text.split('.').map(str::parse);
        match (parts.next(), parts.next(), parts.next().unwrap_or(Ok(0)), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Ok(patch), None) => Ok(Version { major, minor, patch }),
            _ => Err(format!("{text:?} is not a version like 19.2 or 19.2.1")),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
