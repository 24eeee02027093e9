//! The settings of the resources in a run.

use std::time::Duration;

use super::random::Random;

/// What the configuration sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// `mode = "forceful"`.
    pub(super) is_forceful: bool,
    /// `on_timeout = "force"`.
    pub(super) forces: bool,
    /// `on_unreachable = "assume_terminated"`.
    pub(super) assumes: bool,
    /// `timeouts.delete`, and the timeouts of a shutdown resource.
    pub(super) delete: Duration,
    /// `timeouts` of the health check.
    pub(super) health: Duration,
    /// `retry.attempts` of drains and shutdowns.
    pub(super) attempts: Option<u32>,
    pub(super) start_if_stopped: bool,
    pub(super) stable_for: Duration,
    pub(super) level: Level,
    /// With the level `working`.
    pub(super) min_jobs: u64,
    pub(super) start_drains: bool,
    /// Another text is an update in place.
    pub(super) reason: u32,
    /// As the token of the `gitlab` object allows.
    pub(super) on_lost_jobs: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Process,
    Ready,
    Polling,
    Working,
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Ready => "ready",
            Self::Polling => "polling",
            Self::Working => "working",
        }
    }
}

/// The default of `retry.attempts` of a drain.
pub(super) const ATTEMPTS: u32 = 12;

impl Options {
    pub(super) fn new(random: &mut Random) -> Self {
        let minutes = |random: &mut Random, from, to| Duration::from_secs(random.below(to - from) + from);
        let forces = random.percent(25);
        Self {
            is_forceful: random.percent(5),
            forces,
            assumes: random.percent(15),
            delete: match random.below(20) {
                0..3 => minutes(random, 20, 120),
                3..6 => minutes(random, 20, 900),
                // It is often over before the runner has exited.
                6..12 if forces => minutes(random, 20, 60),
                _ => Duration::from_secs(3 * 3600),
            },
            health: if random.percent(20) { minutes(random, 30, 600) } else { Duration::from_secs(600) },
            attempts: random.percent(30).then(|| u32::try_from(random.below(6) + 1).unwrap_or(1)),
            start_if_stopped: random.percent(25),
            stable_for: if random.percent(15) { minutes(random, 1, 20) } else { Duration::ZERO },
            level: match random.below(20) {
                8..11 => Level::Process,
                11..14 => Level::Ready,
                18.. => Level::Working,
                _ => Level::Polling,
            },
            min_jobs: random.below(3) + 1,
            start_drains: random.percent(70),
            reason: 0,
            on_lost_jobs: None,
        }
    }

    /// The settings of most users.
    pub(super) fn usual() -> Self {
        Self {
            is_forceful: false,
            forces: false,
            assumes: false,
            delete: Duration::from_secs(3 * 3600),
            health: Duration::from_secs(600),
            attempts: None,
            start_if_stopped: false,
            stable_for: Duration::ZERO,
            level: Level::Polling,
            min_jobs: 1,
            start_drains: true,
            reason: 0,
            on_lost_jobs: None,
        }
    }

    /// The same with long timeouts and enough attempts, as a user sets them after a failure. No jobs are left for the level `working`.
    pub(super) fn patient(&self) -> Self {
        let level = if self.level == Level::Working { Level::Polling } else { self.level };
        Self {
            delete: Duration::from_secs(3 * 3600),
            health: Duration::from_secs(600),
            attempts: None,
            stable_for: Duration::ZERO,
            level,
            ..self.clone()
        }
    }
}
