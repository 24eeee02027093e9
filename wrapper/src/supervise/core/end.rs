//! How a child ended.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::supervise::process::Exit;

/// How the last child ended, or why there was none. The state file contains it in this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The stop came before the first start.
    NeverStarted,
    /// The child could not be started, for this reason.
    SpawnFailed(Arc<str>),
    /// The child exited. `killed`: the wrapper killed it, because it did not exit in time after SIGTERM.
    Exited { pid: u32, exit: Exit, killed: bool },
}

impl End {
    pub(super) fn is_success(&self) -> bool {
        match self {
            Self::NeverStarted => true,
            Self::SpawnFailed(_) => false,
            Self::Exited { exit, killed, .. } => exit.is_success() && !killed,
        }
    }

    /// The child exited by itself, and its exit status is not known.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Exited { exit: Exit::Unknown, killed: false, .. })
    }

    /// The reason of a failure; `None` for a success.
    pub fn failure(&self) -> Option<String> {
        match self {
            Self::NeverStarted => None,
            Self::SpawnFailed(why) => Some(format!("failed to start process: {why}")),
            Self::Exited { exit, killed: true, .. } => {
                Some(format!("{exit}: the runner did not exit in time after SIGTERM"))
            }
            Self::Exited { exit, .. } if exit.is_success() => None,
            Self::Exited { exit, .. } => Some(exit.to_string()),
        }
    }
}
