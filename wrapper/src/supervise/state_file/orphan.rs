//! The runner of an earlier wrapper whose state file was removed.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{
    format::{Saved, SavedChild},
    times,
};
use crate::supervise::{
    clock::Clocks,
    log_key as key,
    process::{self, CommandLine, Supervised},
    state::Supervision,
};

/// A killed wrapper is still the parent of its runner until its last thread has ended.
const WRAPPER_EXIT_LIMIT: Duration = Duration::from_secs(2);

impl Saved {
    /// For a wrapper that has found no state file: a running runner that an earlier wrapper with this state file started. What that wrapper knew
    /// is lost: a drain, for example, must be requested again. Takes as long as a search for processes, at most seconds.
    /// Fails if there are several, because it is unknown which one a drain would have to stop, or if one has a wrapper, which did not lock the
    /// file again.
    pub async fn of_orphan(state_file: &Path, command: &CommandLine) -> io::Result<Option<Self>> {
        // Without a program, the command as it was written is searched.
        let program = command.program().await.ok();
        let give_up = Instant::now() + WRAPPER_EXIT_LIMIT;
        let mut runners = loop {
            let found = process::orphaned(&path_of(state_file), command, program.as_deref()).await;
            let Supervised { runner, wrapper } = match found {
                Ok(runners) => break runners,
                Err(supervised) => supervised,
            };
            if Instant::now() >= give_up {
                return Err(io::Error::other(format!(
                    "the state file was removed, and its wrapper (PID {wrapper}) still supervises a runner (PID \
                     {runner}). Stop that wrapper first: on SIGTERM it drains its runner"
                )));
            }
            sleep(Duration::from_millis(50)).await;
        };
        let Some(identity) = runners.pop() else { return Ok(None) };
        if !runners.is_empty() {
            let pids: Vec<_> =
                runners.iter().chain([&identity]).map(|runner| runner.pid.to_string()).collect();
            return Err(io::Error::other(format!(
                "the state file was removed, and several runners of earlier wrappers are running (PIDs {}). \
                 Stop all of them but one: SIGQUIT lets a runner finish its jobs. Then start the wrapper again",
                pids.join(", ")
            )));
        }
        warn!(
            { key::PID } = identity.pid,
            { key::PATH } = %state_file.display(),
            "the state file was removed while the runner of an earlier wrapper was running; a drain of it must \
             be requested again"
        );
        let (clocks, now) = (Clocks::now(), Instant::now());
        let started = process::started_at(identity.pid).map_or_else(
            || times::millis(&clocks, now),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of this century")]
            |seconds| (seconds * 1000.0) as u64,
        );
        let mut saved = Self::new(&clocks, now, &Supervision::default(), None, None, &[]);
        saved.child = Some(SavedChild { identity, barrier: None, started });
        Ok(Some(saved))
    }
}

/// The path of a state file in the environment of its runner.
pub(crate) fn path_of(state_file: &Path) -> PathBuf {
    std::path::absolute(state_file).unwrap_or_else(|_| state_file.to_owned())
}
