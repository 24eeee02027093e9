//! The check of the command, before the wrapper starts a runner with it.

use std::{path::PathBuf, time::Duration};

use tokio::time::timeout;
use tracing::{error, warn};

use crate::supervise::{
    Handle, log_key as key,
    process::{self, CommandLine},
};

/// How long the first start waits for the check of the command.
const CHECK_LIMIT: Duration = Duration::from_secs(1);

/// Warns of a command that cannot restart the adopted runner, and of other processes with this command: an unsupervised runner, or the runner of
/// another wrapper, could have the same configuration. A drain would stop only one of the two. `program`: of the command, if it was searched.
/// Takes at most [`CHECK_LIMIT`].
pub(super) async fn check_command(command: &CommandLine, program: Option<PathBuf>, supervisor: &Handle) {
    if timeout(CHECK_LIMIT, check(command, program, supervisor)).await.is_err() {
        warn!("cannot check in time whether another process runs the same command");
    }
}

async fn check(command: &CommandLine, program: Option<PathBuf>, supervisor: &Handle) {
    let program = match program {
        Some(program) => Ok(program),
        None => command.program().await,
    };
    let program = match program {
        Ok(program) => program,
        Err(error) => {
            error!(
                { key::ERROR } = format!("{:#}", anyhow::Error::new(error)),
                "the adopted runner is supervised, but cannot be restarted"
            );
            return;
        }
    };
    let ours = supervisor.now().state.child().map(|child| child.pid);
    for pid in process::running(command, &program).await.into_iter().filter(|pid| Some(*pid) != ours) {
        warn!(
            { key::PID } = pid,
            "another process runs the same command. If both use the same configuration, both accept jobs, \
             and this wrapper drains only its runner. Stop the other process, or use separate \
             configurations"
        );
    }
}
