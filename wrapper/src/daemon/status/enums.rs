//! The supervisor's values as values of the API.

use grit_proto::wrapper_v1::{DrainOutcome, Mode, State};

use crate::supervise::{self, RunnerState, StopOutcome};

pub(super) fn state(state: RunnerState) -> State {
    match state {
        RunnerState::Idle => State::Idle,
        RunnerState::Starting => State::Starting,
        RunnerState::Running => State::Running,
        RunnerState::Draining => State::Draining,
        RunnerState::Terminating => State::Terminating,
        RunnerState::Backoff => State::Backoff,
        RunnerState::Stopped => State::Stopped,
        RunnerState::Failed => State::Failed,
    }
}

pub(super) fn mode(mode: supervise::Mode) -> Mode {
    match mode {
        supervise::Mode::Graceful => Mode::Graceful,
        supervise::Mode::Forceful => Mode::Forceful,
    }
}

pub(super) fn outcome(outcome: StopOutcome) -> DrainOutcome {
    match outcome {
        StopOutcome::Clean => DrainOutcome::Clean,
        StopOutcome::JobsAborted => DrainOutcome::JobsAborted,
        StopOutcome::ResultsLost => DrainOutcome::ResultsLost,
        StopOutcome::Killed => DrainOutcome::Killed,
        StopOutcome::Failed => DrainOutcome::Failed,
        StopOutcome::Unknown => DrainOutcome::Unknown,
        StopOutcome::NoRunner => DrainOutcome::NoRunner,
        StopOutcome::OpenRequests => DrainOutcome::OpenRequests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grit_proto::json::short;

    /// The log and the metrics show the names of the supervisor.
    #[test]
    fn api_and_supervisor_use_the_same_names() {
        for known in RunnerState::ALL {
            assert_eq!(short(state(known).as_str_name()), known.name());
        }
        for known in [supervise::Mode::Graceful, supervise::Mode::Forceful] {
            assert_eq!(short(mode(known).as_str_name()), known.name());
        }
        for known in StopOutcome::ALL {
            assert_eq!(short(outcome(known).as_str_name()), known.name());
        }
    }
}
