//! What happened between two states, for those who count it: a child that ended, a drain that is over.
//!
//! Pure, and beside the table: it is shown each state that the table leads to, and remembers of the one before what it needs.

use std::time::Duration;

use tokio::time::Instant;

use super::process::Exit;
use super::{
    command::Mode,
    state::{End, State},
};

/// How a child came to its end, in the words of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    Success,
    Error,
    Signal,
    /// It did not end in time after SIGTERM.
    Killed,
    /// It was adopted, and how it ended was told to another parent.
    Unknown,
    SpawnFailed,
}

/// How a drain came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainResult {
    /// The runner ended as it was asked to, with exit code 0.
    Finished,
    /// It ended with another exit code, or by a signal that was not the wrapper's.
    Failed,
    /// It had been adopted, and its exit code is not known.
    Unknown,
    /// A graceful one became forceful, and the runner ended then.
    Forced,
    /// The runner's group was killed.
    Killed,
    /// It was taken back.
    Cancelled,
    /// No runner ran, and now none will be started.
    NoRunner,
}

/// A drain that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// As it was asked for first.
    pub mode: Mode,
    pub result: DrainResult,
    /// From when it was asked for; `None` when no runner had to end.
    pub took: Option<Duration>,
}

/// What happened in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    pub exit: Option<ExitReason>,
    pub drained: Option<Drained>,
}

/// What is remembered of the state before.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// A child lived, or was being made.
    child: bool,
    /// It was all over already.
    over: bool,
    /// The stop that was under way.
    stop: Option<Wish>,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    /// As it was asked for first.
    mode: Mode,
    /// As it is by now.
    latest: Mode,
    asked: Instant,
}

impl ExitReason {
    pub const ALL: [Self; 6] =
        [Self::Success, Self::Error, Self::Signal, Self::Killed, Self::Unknown, Self::SpawnFailed];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Signal => "signal",
            Self::Killed => "killed",
            Self::Unknown => "unknown",
            Self::SpawnFailed => "spawn_failed",
        }
    }

    fn of(end: &End) -> Option<Self> {
        Some(match end {
            End::NeverStarted => return None,
            End::SpawnFailed(_) => Self::SpawnFailed,
            End::Exited { killed: true, .. } => Self::Killed,
            End::Exited { exit: Exit::Code(0), .. } => Self::Success,
            End::Exited { exit: Exit::Code(_), .. } => Self::Error,
            End::Exited { exit: Exit::Signal(_), .. } => Self::Signal,
            End::Exited { exit: Exit::Unknown, .. } => Self::Unknown,
        })
    }
}

impl DrainResult {
    pub const ALL: [Self; 7] = [
        Self::Finished,
        Self::Failed,
        Self::Unknown,
        Self::Forced,
        Self::Killed,
        Self::Cancelled,
        Self::NoRunner,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Forced => "forced",
            Self::Killed => "killed",
            Self::Cancelled => "cancelled",
            Self::NoRunner => "no_runner",
        }
    }
}

impl Tally {
    /// One that has seen this state. What led to it was counted by an earlier wrapper.
    pub(super) fn of(state: &State) -> Self {
        let mut tally = Self::default();
        tally.remember(state);
        tally
    }

    /// What happened on the way from the state seen before to this one.
    pub(super) fn see(&mut self, state: &State, now: Instant) -> Happened {
        let end = match state {
            State::Backoff { end, .. } | State::Exited { end, .. } => Some(end),
            State::Idle | State::Starting { .. } | State::Running { .. } | State::Stopping { .. } => None,
        };
        let exit = end.filter(|_| self.child).and_then(ExitReason::of);
        let drained = match (self.stop, end) {
            (Some(wish), Some(end)) => Some(wish.ended(end, now)),
            (Some(wish), None) if state.stop().is_none() => {
                Some(Drained { mode: wish.mode, result: DrainResult::Cancelled, took: None })
            }
            // Nobody had asked before, and now there is an end that somebody asked for: there was nothing to end.
            (None, Some(_)) if !self.child && !self.over => state.stop().map(|stop| Drained {
                mode: stop.mode,
                result: DrainResult::NoRunner,
                took: None,
            }),
            _ => None,
        };
        self.remember(state);
        Happened { exit, drained }
    }
    fn remember(&mut self, state: &State) {
        self.child = state.child().is_some() || matches!(state, State::Starting { .. });
        self.over = matches!(state, State::Exited { .. });
        let under_way = state.stop().filter(|_| !self.over);
        self.stop = under_way.map(|stop| Wish {
            mode: self.stop.map_or(stop.mode, |wish| wish.mode),
            latest: stop.mode,
            asked: stop.asked,
        });
    }
}

impl Wish {
    fn ended(self, end: &End, now: Instant) -> Drained {
        let result = match end {
            End::NeverStarted | End::SpawnFailed(_) => DrainResult::NoRunner,
            End::Exited { killed: true, .. } => DrainResult::Killed,
            End::Exited { .. } if self.latest != self.mode => DrainResult::Forced,
            End::Exited { exit: Exit::Unknown, .. } => DrainResult::Unknown,
            End::Exited { exit, .. } if !exit.is_success() => DrainResult::Failed,
            End::Exited { .. } => DrainResult::Finished,
        };
        let took = (result != DrainResult::NoRunner).then(|| now.saturating_duration_since(self.asked));
        Drained { mode: self.mode, result, took }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::{ChildInfo, Phase, Stop};

    fn running() -> State {
        State::Running { child: ChildInfo { pid: 1, started: Instant::now() }, reload: None }
    }

    fn stopping(mode: Mode) -> State {
        let child = ChildInfo { pid: 1, started: Instant::now() };
        State::Stopping { child, stop: Stop::new("d", mode), phase: Phase::Killed }
    }

    fn exited(exit: Exit, killed: bool, stop: Option<Mode>) -> State {
        let stop = stop.map(|mode| Stop::new("d", mode));
        State::Exited { end: End::Exited { pid: 1, exit, killed }, stop }
    }

    /// Each life from its first state on, and what is counted in all of it.
    fn counted(states: &[State]) -> (Vec<ExitReason>, Vec<(Mode, DrainResult)>) {
        let mut tally = Tally::of(&states[0]);
        let seen: Vec<_> = states[1..].iter().map(|state| tally.see(state, Instant::now())).collect();
        let drained = seen.iter().filter_map(|seen| seen.drained);
        (
            seen.iter().filter_map(|seen| seen.exit).collect(),
            drained.map(|drained| (drained.mode, drained.result)).collect(),
        )
    }

    #[test]
    fn each_exit_and_each_drain_is_counted_once() {
        use DrainResult::{Cancelled, Finished, Forced, Killed, NoRunner};
        use Mode::{Forceful, Graceful};
        let over = |exit, killed| exited(exit, killed, Some(Graceful));
        let starting = |stop: Option<Mode>| State::Starting { stop: stop.map(|mode| Stop::new("d", mode)) };
        let unstarted = |end| State::Exited { end, stop: Some(Stop::new("d", Graceful)) };
        let backoff = || State::Backoff {
            until: Instant::now(),
            end: End::Exited { pid: 1, exit: Exit::Code(1), killed: false },
        };
        let (zero, nine) = (Exit::Code(0), Exit::Signal(9));
        let failed = End::SpawnFailed("no".into());
        for (states, exits, drains) in [
            (vec![starting(None), running(), exited(nine, false, None)], vec![ExitReason::Signal], vec![]),
            (
                vec![running(), stopping(Graceful), stopping(Graceful), over(zero, false), over(zero, false)],
                vec![ExitReason::Success],
                vec![(Graceful, Finished)],
            ),
            (
                vec![running(), stopping(Graceful), stopping(Forceful), over(Exit::Code(2), false)],
                vec![ExitReason::Error],
                vec![(Graceful, Forced)],
            ),
            (
                vec![running(), stopping(Forceful), exited(nine, true, Some(Forceful))],
                vec![ExitReason::Killed],
                vec![(Forceful, Killed)],
            ),
            (vec![running(), stopping(Graceful), running()], vec![], vec![(Graceful, Cancelled)]),
            (vec![starting(Some(Graceful)), starting(None)], vec![], vec![(Graceful, Cancelled)]),
            (vec![State::Idle, unstarted(End::NeverStarted)], vec![], vec![(Graceful, NoRunner)]),
            (vec![backoff(), over(Exit::Code(1), false)], vec![], vec![(Graceful, NoRunner)]),
            (
                vec![starting(Some(Graceful)), unstarted(failed)],
                vec![ExitReason::SpawnFailed],
                vec![(Graceful, NoRunner)],
            ),
            // Asked after the end: nothing was drained.
            (vec![exited(zero, false, None), over(zero, false)], vec![], vec![]),
            // Adopted by a wrapper that was killed in the middle of a drain, whose end only stops the runner for a moment.
            (
                vec![stopping(Graceful), over(Exit::Unknown, false)],
                vec![ExitReason::Unknown],
                vec![(Graceful, DrainResult::Unknown)],
            ),
            (
                vec![stopping(Graceful), backoff()],
                vec![ExitReason::Error],
                vec![(Graceful, DrainResult::Failed)],
            ),
            (vec![running(), backoff(), starting(None), running()], vec![ExitReason::Error], vec![]),
        ] {
            assert_eq!(counted(&states), (exits, drains), "{states:?}");
        }
    }

    #[test]
    fn drain_duration_counts_from_request() {
        let mut tally = Tally::of(&stopping(Mode::Graceful));
        let later = Instant::now() + Duration::from_secs(90);
        let took = tally.see(&exited(Exit::Code(0), false, None), later).drained.unwrap().took.unwrap();
        assert!(took.abs_diff(Duration::from_secs(90)) < Duration::from_secs(5), "{took:?}");
    }
}
