//! The command of `--on-exit`.

use std::{process::Stdio, sync::Arc, time::Duration};

use tokio::{process::Command, sync::Mutex, task::JoinSet, time::timeout};
use tracing::{error, info, warn};

use crate::{
    daemon::host::systemd::OF_WRAPPER,
    supervise::{Stop, process::Exit},
};

/// How long the exit of the wrapper waits for the commands.
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// An init that passes signals to the process group of the wrapper, such as dumb-init, must not end the command.
const SCRIPT: &str = "trap '' HUP INT QUIT TERM; exec /bin/sh -c \"$1\"";

/// Executes a command after each exit of the runner, if there is one. Clones share the running commands.
#[derive(Clone, Debug, Default)]
pub(in crate::daemon) struct OnExit {
    command: Option<Arc<str>>,
    running: Arc<Mutex<JoinSet<()>>>,
}

impl OnExit {
    pub(in crate::daemon) fn new(command: Option<&str>) -> Self {
        Self { command: command.map(Arc::from), ..Self::default() }
    }

    /// Starts the command, and returns at once. It is executed once: a wrapper that is killed does not repeat it.
    pub(super) fn start(&self, exit: Exit, stop: Option<&Stop>) {
        let Some(words) = &self.command else { return };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "on-exit", words]).stdin(Stdio::null());
        command.envs(environment(exit, stop));
        for variable in OF_WRAPPER {
            command.env_remove(variable);
        }
        // The lock is held only here and at the exit of the wrapper.
        let Ok(mut running) = self.running.try_lock() else {
            return error!("the command of --on-exit is not executed: the wrapper is exiting");
        };
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            match command.status().await {
                Ok(status) if status.success() => info!("the command of --on-exit has succeeded"),
                Ok(status) => error!(%status, "the command of --on-exit has failed"),
                Err(error) => error!(%error, "cannot execute the command of --on-exit"),
            }
        });
    }

    /// Waits for the commands, for at most [`LIMIT`].
    pub(in crate::daemon) async fn finish(&self) {
        let mut running = self.running.lock().await;
        let finished = async { while running.join_next().await.is_some() {} };
        if timeout(LIMIT, finished).await.is_err() {
            warn!("the wrapper exits, and the command of --on-exit is still running");
            running.detach_all();
        }
    }
}

/// The outcome, for the command. A value that is not known is empty.
fn environment(exit: Exit, stop: Option<&Stop>) -> [(&'static str, String); 4] {
    let code = match exit {
        Exit::Unknown => String::new(),
        exit => exit.shell_code().to_string(),
    };
    let outcome = stop.and_then(|stop| stop.outcome).map(|outcome| outcome.name().to_owned());
    [
        ("GRIT_RUNNER_EXIT_CODE", code),
        ("GRIT_DRAIN_OUTCOME", outcome.unwrap_or_default()),
        ("GRIT_DRAIN_ID", stop.map(|stop| stop.id.to_string()).unwrap_or_default()),
        ("GRIT_DRAIN_REASON", stop.map(|stop| stop.reason.to_string()).unwrap_or_default()),
    ]
}
