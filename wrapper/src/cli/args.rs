//! The command line.

use std::{ffi::OsString, process::ExitCode, sync::LazyLock};

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};

use super::{commands, run_flags::Run};
use crate::daemon::version;

static VERSION: LazyLock<String> = LazyLock::new(|| version::full(version::REVISION));

/// Starts, monitors and drains gitlab-runner.
#[derive(Debug, Parser)]
#[command(name = "grit-wrapper", version = VERSION.as_str(), arg_required_else_help = true, max_term_width = 110)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// Parses the command line and the environment of this process.
    /// The error is the exit code, after a wrong command line or `--help`. The message was printed.
    pub fn from_process() -> Result<Self, ExitCode> {
        Self::from_words(std::env::args_os()).map_err(|error| {
            let exit_code = error.exit_code();
            // Nothing can be done when the message cannot be printed.
            let _printed = error.print();
            let is_run = std::env::args().nth(1).is_some_and(|word| word == "run");
            let code = match exit_code {
                // For the other commands 2 means that no wrapper can be reached.
                2 if !is_run => 1,
                code => u8::try_from(code).unwrap_or(1),
            };
            ExitCode::from(code)
        })
    }

    pub(crate) fn from_words(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let args = Self::try_parse_from(words)?;
        if let Command::Run(run) = &args.command {
            run.check().map_err(|why| Self::command().error(ErrorKind::ValueValidation, why))?;
        }
        Ok(args)
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command under supervision: `grit-wrapper run -- gitlab-runner run`.
    Run(Box<Run>),
    #[command(flatten)]
    Operator(commands::Command),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        cli::run_flags::WhenStopped,
        daemon::serve::listen::{self, SocketAccess},
        runner,
        supervise::Policy,
    };

    fn run(args: &[&str]) -> Result<Run, clap::Error> {
        let words = ["grit-wrapper", "run"].iter().chain(args).copied();
        Args::from_words(words).map(|args| match args.command {
            Command::Run(run) => *run,
            Command::Operator(command) => panic!("{command:?}"),
        })
    }

    #[test]
    fn clap_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn flag_defaults_match_constants() {
        let run = run(&["--", "true"]).unwrap();
        let settings = run.settings();
        assert_eq!(settings.policy, Policy::default());
        assert_eq!(settings.grpc_rules.access, SocketAccess::default());
        assert!(!settings.grpc_rules.beyond_loopback);
        assert!(settings.http.is_none());
        assert_eq!(settings.grpc_listen, [listen::DEFAULT_ADDRESS.parse().unwrap()]);
        assert_eq!(settings.health.interval, runner::Settings::INTERVAL);
        assert_eq!(settings.drain_timeout, None);
        assert_eq!(run.when_stopped, WhenStopped::Stay);
    }

    #[test]
    fn http_and_grpc_beyond_loopback_have_separate_flags() {
        let allowed = |flag: &str| {
            let settings =
                run(&[flag, "--http-listen", "tcp://127.0.0.1:0", "--", "true"]).unwrap().settings();
            (settings.grpc_rules.beyond_loopback, settings.http.unwrap().remote)
        };
        assert_eq!(allowed("--insecure-tcp-beyond-loopback"), (true, false));
        assert_eq!(allowed("--insecure-http-beyond-loopback"), (false, true));
    }

    #[test]
    fn version_flag_prints_the_full_version() {
        let printed = Args::command().render_version();
        assert_eq!(printed.trim_end(), format!("grit-wrapper {}", version::full(version::REVISION)));
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
        assert_eq!(run.process_termination_timeout, Some(Duration::from_secs(3 * 3600)));
        assert_eq!(run.command, ["gitlab-runner", "run", "--config", "/etc/x"]);
    }

    #[test]
    fn negative_duration_is_not_taken_for_a_flag() {
        for words in
            [["drain", "--deadline", "-5s"], ["drain", "--timeout", "-.5h"], ["wait", "--timeout", "-1m"]]
        {
            let error = Args::from_words(["grit-wrapper"].into_iter().chain(words)).unwrap_err().to_string();
            assert!(error.contains("must not be negative"), "{error}");
        }
        let error =
            Args::from_words(["grit-wrapper", "drain", "--deadline", "--wait"]).unwrap_err().to_string();
        assert!(error.contains("expected a duration"), "{error}");
    }

    #[test]
    fn errors_name_the_flag() {
        for (args, flag) in [
            (&["--grpc-listen", "localhost:7777", "--", "x"][..], "--grpc-listen"),
            (&["--socket-mode", "0999", "--", "x"], "--socket-mode"),
            (&["--socket-mode", "7777", "--", "x"], "--socket-mode"),
            (&["--process-termination-timeout", "10", "--", "x"], "--process-termination-timeout"),
            (&["--drain-timeout=-1s", "--", "x"], "--drain-timeout <DURATION>': must not be negative"),
            (&["--drain-timeout=0", "--", "x"], "omit the flag for no limit"),
            (&["--grpc-listen", "fd://", "--", "x"], "or tcp://"),
            (&["--http-listen", "unix:///run/x", "--", "x"], "--http-listen"),
            (&["--start-grace", "soon", "--", "x"], "--start-grace"),
            (&["--when-stopped", "restart", "--", "x"], "--when-stopped"),
            (&["--status-listen", "tcp://127.0.0.1:0", "--", "x"], "--status-listen"),
            (&["--allow-callback", "ci.example", "--", "x"], "--allow-callback"),
            (&["--restart", "maybe", "--", "x"], "--restart"),
            (&["--log-level", "loud", "--", "x"], "--log-level"),
            (&["--no-such-flag", "--", "x"], "--no-such-flag"),
            (&[], "COMMAND"),
        ] {
            let error = run(args).unwrap_err().to_string();
            assert!(error.contains(flag), "{args:?}: {error}");
        }
    }
}
