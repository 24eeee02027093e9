//! What the journal shows of the drain of a runner that has exited with code 0: the code shows neither aborted jobs nor lost results.

use tracing::warn;

use super::Journal;
use crate::supervise::{
    core::{ChildInfo, LogEvidence, Stop},
    log_key as key,
};

/// GitLab Runner logs this when SIGTERM or SIGINT makes its shutdown forceful.
const FORCEFUL_SHUTDOWN: &str = "Starting forceful shutdown";

/// GitLab Runner logs this when it gives up reporting the end of a job to GitLab: `Job trace termination "Success" failed`, as an error.
const RESULT_LOST: &str = "Job trace termination";

impl Journal {
    /// What the log of this runner shows of this drain. Takes at most some seconds. A search that fails is logged.
    pub(in crate::supervise) async fn evidence(&self, runner: ChildInfo, drain: &Stop) -> LogEvidence {
        let pid = runner.pid();
        let texts = [FORCEFUL_SHUTDOWN, RESULT_LOST];
        match self.has_messages(texts, pid, drain.requested.at, drain.requested.wall).await {
            Ok([aborted_jobs, lost_results]) => LogEvidence { aborted_jobs, lost_results, unreadable: false },
            Err(error) => {
                warn!(
                    { key::ERROR } = %error,
                    { key::PID } = pid,
                    "cannot check the runner's log for aborted jobs and lost job results; the outcome of the drain is unknown"
                );
                LogEvidence { unreadable: true, ..LogEvidence::default() }
            }
        }
    }
}
