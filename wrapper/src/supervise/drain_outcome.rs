//! What a stop came to: whether jobs may have been lost to it.

use serde::{Deserialize, Serialize};

use super::process::Exit;
use super::{command::Mode, state::End};

/// What a stop that is over came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrainOutcome {
    /// The child was asked to finish its jobs, and ended with exit code 0.
    Clean,
    /// The child was asked to abort its jobs, and ended with exit code 0.
    JobsAborted,
    /// The child did not end in time after SIGTERM, and was killed.
    Killed,
    /// The child ended with another exit code, or by a signal that was not ours.
    Failed,
    /// The child ended, and its exit code is not known.
    Unknown,
    /// There was no child to stop.
    NoRunner,
}

impl DrainOutcome {
    /// Of a stop that had come to this mode when its child ended like this.
    pub(crate) fn of(mode: Mode, end: &End) -> Self {
        match (end, mode) {
            (End::NeverStarted | End::SpawnFailed(_), _) => Self::NoRunner,
            (End::Exited { killed: true, .. }, _) => Self::Killed,
            (End::Exited { exit: Exit::Unknown, .. }, _) => Self::Unknown,
            (End::Exited { exit, .. }, _) if !exit.is_success() => Self::Failed,
            (End::Exited { .. }, Mode::Graceful) => Self::Clean,
            (End::Exited { .. }, Mode::Forceful) => Self::JobsAborted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exit_code_0_after_graceful_stop_is_clean() {
        let of = |mode, exit, killed| DrainOutcome::of(mode, &End::Exited { pid: 1, exit, killed });
        for (mode, exit, killed, outcome) in [
            (Mode::Graceful, Exit::Code(0), false, DrainOutcome::Clean),
            (Mode::Graceful, Exit::Code(1), false, DrainOutcome::Failed),
            (Mode::Graceful, Exit::Signal(3), false, DrainOutcome::Failed),
            (Mode::Graceful, Exit::Unknown, false, DrainOutcome::Unknown),
            (Mode::Forceful, Exit::Code(0), false, DrainOutcome::JobsAborted),
            (Mode::Forceful, Exit::Code(1), false, DrainOutcome::Failed),
            (Mode::Forceful, Exit::Unknown, false, DrainOutcome::Unknown),
            (Mode::Forceful, Exit::Signal(9), true, DrainOutcome::Killed),
        ] {
            assert_eq!(of(mode, exit, killed), outcome, "{mode:?} {exit:?} {killed}");
        }
        assert_eq!(DrainOutcome::of(Mode::Graceful, &End::NeverStarted), DrainOutcome::NoRunner);
    }
}
