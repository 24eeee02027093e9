//! The operator's commands: `status`, `jobs`, `drain`, `cancel`, `start` and `wait`, which connect to a running wrapper, and `dial-stdio`.
//!
//! Every other command prints text, or JSON with `--json`. Exit codes: 0 success, 1 other error, 2 cannot connect, 3 timed out, 4 the runner
//! exited, but the drain was not clean.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use clap::{Args, Subcommand};
use grit_proto::wrapper_v1::{
    CancelRequest, DrainOutcome, DrainRequest, GetStatusRequest, ListJobsRequest, Mode, StartRequest, Status,
    exit::How, wrapper_client::WrapperClient,
};
use tokio::runtime;
use tonic::{Response, transport::Channel};

use super::{
    client::Client,
    dial_stdio,
    error::CommandError,
    stdout::print,
    unit_commands, view,
    wait::{self, Goal, Progress, Watch},
};
use crate::{
    daemon::{
        serve::listen::{self, Address},
        status,
    },
    supervise::UnitName,
    text::{duration, visible::visible_line},
};

/// Address of the wrapper, and output format.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Address of the wrapper: unix:///absolute/path or tcp://host:port.
    #[arg(long, env = "GRIT_WRAPPER_ADDRESS", value_name = "URL", default_value = listen::DEFAULT_ADDRESS)]
    pub address: Address,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the runner's state and health.
    Status {
        #[command(flatten)]
        common: Common,
    },
    /// List the runner's jobs.
    Jobs {
        #[command(flatten)]
        common: Common,
    },
    /// Drain the runner: it finishes its jobs and exits.
    Drain {
        #[command(flatten)]
        common: Common,
        /// Stop the runner forcefully: its jobs are aborted.
        #[arg(long)]
        force: bool,
        /// Identifier of the drain. A repeated call with the same id joins the drain in progress.
        #[arg(long, default_value = "operator")]
        id: String,
        /// Reason, shown in the status and in the log.
        #[arg(long, default_value = "")]
        reason: String,
        /// Abort remaining jobs after this duration. Default: never.
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse_limit)]
        deadline: Option<Duration>,
        /// Wait until the runner has exited. Exit code 0: the outcome is clean or no_runner, or jobs_aborted with --force. Exit code 4: every other outcome. The output contains the outcome.
        #[arg(long)]
        wait: bool,
        /// Timeout of the wait. After a timeout, the drain continues. Default: no timeout.
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse, requires = "wait")]
        timeout: Option<Duration>,
    },
    /// Cancel a drain. Possible only until SIGQUIT is sent to the runner.
    Cancel {
        #[command(flatten)]
        common: Common,
        /// Cancel only the drain with this id. Default: any drain.
        #[arg(long, default_value = "")]
        id: String,
    },
    /// Start the runner after it has exited.
    Start {
        #[command(flatten)]
        common: Common,
    },
    /// Wait until the runner has exited, or has reached a health level. The exit codes are those of `drain --wait`.
    Wait {
        #[command(flatten)]
        common: Common,
        /// State or health level to wait for.
        #[arg(long = "for", value_enum, default_value_t = Goal::Stopped)]
        goal: Goal,
        /// Timeout of the wait. Default: no timeout.
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse)]
        timeout: Option<Duration>,
    },
    /// Connect standard input and output to the wrapper, for an SSH client. The command ends when the wrapper closes the connection,
    /// or when standard output is closed.
    DialStdio {
        /// Address of the wrapper: unix:///absolute/path or tcp://host:port.
        #[arg(long, env = "GRIT_WRAPPER_ADDRESS", value_name = "URL", default_value = listen::DEFAULT_ADDRESS)]
        address: Address,
    },
    /// For ExecStop= of a runner's unit: drain the runner, and wait until it has exited.
    #[command(hide = true)]
    ExecStop { unit: UnitName },
    /// For ExecStopPost= of a runner's unit: record how the runner ended.
    #[command(hide = true)]
    ExecStopPost { unit: UnitName },
}

/// Executes a command and prints its output on stdout.
/// The caller prints the error on stderr.
pub fn run(command: Command) -> Result<(), CommandError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(carry_out(command))
}

async fn carry_out(command: Command) -> Result<(), CommandError> {
    match command {
        Command::Status { common } => {
            let status = call(&common, async |client| client.get_status(GetStatusRequest {}).await).await?;
            show(&common, &status)
        }
        Command::Jobs { common } => {
            let answer = call(&common, async |client| client.list_jobs(ListJobsRequest {}).await).await?;
            let text = if common.json { status::json(&answer.jobs) } else { view::jobs(&answer.jobs) };
            print(&text)?;
            if answer.left_out > 0 {
                let count = answer.left_out;
                writeln!(
                    io::stderr().lock(),
                    "grit-wrapper: {count} more jobs are not shown; all of them are younger"
                )?;
            }
            Ok(())
        }
        Command::Drain { common, force, id, reason, deadline, wait, timeout } => {
            let request = DrainRequest {
                id: id.clone(),
                mode: if force { Mode::Forceful } else { Mode::Graceful }.into(),
                reason,
                deadline: deadline.and_then(|deadline| deadline.try_into().ok()),
                callback: None,
                // Set in every CI job, so that the wrapper can reject a drain of the job's own runner.
                job_url: std::env::var("CI_JOB_URL").unwrap_or_default(),
                by_service_manager: false,
            };
            // Opened first, so that no status between the drain and the watch is missed.
            let mut watch = if wait { Some(Watch::open(&common.address).await?) } else { None };
            let answer = match &mut watch {
                Some(watch) => {
                    watch.skip_first().await;
                    let answer = watch.client.ask(async |client| client.drain(request).await).await?;
                    watch.status.clone_from(&answer.status);
                    answer
                }
                None => call(&common, async |client| client.drain(request).await).await?,
            };
            if common.json {
                print(&status::json(&answer))?;
            } else if !wait {
                print(&view::drained(&id, &answer))?;
            } else if let Some(joined) = view::joined(&id, &answer) {
                writeln!(io::stderr().lock(), "grit-wrapper: {}", visible_line(&joined))?;
            }
            if wait { Box::pin(finish(&common, Goal::Stopped, timeout, force, watch)).await } else { Ok(()) }
        }
        Command::Cancel { common, id } => {
            let request = CancelRequest { id };
            let answer = call(&common, async |client| client.cancel(request).await).await?;
            show(&common, &answer.status.unwrap_or_default())
        }
        Command::Start { common } => {
            let answer = call(&common, async |client| client.start(StartRequest {}).await).await?;
            let status = answer.status.unwrap_or_default();
            match status.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
                // Of this start: a runner that is there shows no earlier end.
                Some(How::SpawnError(why)) => Err(CommandError::NotStarted(why.clone())),
                _ => show(&common, &status),
            }
        }
        Command::Wait { common, goal, timeout } => {
            Box::pin(finish(&common, goal, timeout, false, None)).await
        }
        Command::DialStdio { address } => dial_stdio::run(&address).await,
        Command::ExecStop { unit } => unit_commands::exec_stop(&unit).await,
        Command::ExecStopPost { unit } => unit_commands::exec_stop_post(&unit),
    }
}

async fn call<T>(
    common: &Common,
    ask: impl AsyncFnOnce(&mut WrapperClient<Channel>) -> Result<Response<T>, tonic::Status>,
) -> Result<T, CommandError> {
    Client::connect(&common.address).await?.ask(ask).await
}

/// `abort_asked`: this command requested that jobs are aborted, so aborted jobs are not a failure.
async fn finish(
    common: &Common,
    goal: Goal,
    timeout: Option<Duration>,
    abort_asked: bool,
    watch: Option<Watch>,
) -> Result<(), CommandError> {
    let progress = if io::stderr().is_terminal() { Progress::Terminal } else { Progress::Lines };
    let reached = wait::wait(&common.address, goal, timeout, progress, watch).await?;
    show(common, &reached.status)?;
    match reached.outcome {
        DrainOutcome::Unspecified | DrainOutcome::Clean | DrainOutcome::NoRunner => Ok(()),
        DrainOutcome::JobsAborted if abort_asked => Ok(()),
        outcome @ (DrainOutcome::JobsAborted
        | DrainOutcome::ResultsLost
        | DrainOutcome::OpenRequests
        | DrainOutcome::Killed
        | DrainOutcome::Failed
        | DrainOutcome::Unknown) => Err(CommandError::NotClean(view::outcome_text(outcome, None))),
    }
}

fn show(common: &Common, status: &Status) -> Result<(), CommandError> {
    print(&if common.json { status::json(status) } else { view::status(status) })
}
