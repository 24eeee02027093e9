//! A wrapper that follows a script, on tokio's paused clock.

use std::{fmt, sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::{Fault, Retry, Wrapper};
use crate::client::{RunnerStatus, ShutdownCallback, StatusReport};

/// What the script decides from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scene {
    /// Since the start.
    pub elapsed: Duration,
    /// Since the first graceful request.
    pub graceful: Option<Duration>,
    /// Since the first forceful request.
    pub forceful: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptedFault {
    Down,
    Refused,
}

impl fmt::Display for ScriptedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Fault for ScriptedFault {
    fn retryable(&self) -> bool {
        *self == Self::Down
    }
}

type Answer = Result<RunnerStatus, ScriptedFault>;

pub(super) struct Scripted<F> {
    script: F,
    start: Instant,
    asked: Mutex<(Vec<Instant>, Vec<Instant>)>,
}

impl<F: Fn(Scene) -> Answer + Sync> Scripted<F> {
    pub(super) fn new(script: F) -> Self {
        Self { script, start: Instant::now(), asked: Mutex::default() }
    }

    /// Graceful and forceful requests so far.
    pub(super) fn requests(&self) -> (usize, usize) {
        let asked = self.asked.lock().unwrap();
        (asked.0.len(), asked.1.len())
    }

    fn answer(&self) -> Result<StatusReport, ScriptedFault> {
        let asked = self.asked.lock().unwrap();
        let since = |asks: &[Instant]| asks.first().map(Instant::elapsed);
        let scene =
            Scene { elapsed: self.start.elapsed(), graceful: since(&asked.0), forceful: since(&asked.1) };
        (self.script)(scene).map(|status| StatusReport { status, failure_reason: String::new() })
    }
}

impl<F: Fn(Scene) -> Answer + Sync> Wrapper for Scripted<F> {
    type Error = ScriptedFault;

    async fn check_status(&self) -> Result<StatusReport, ScriptedFault> {
        self.answer()
    }

    async fn init_graceful_shutdown(
        &self,
        _: Option<ShutdownCallback>,
    ) -> Result<StatusReport, ScriptedFault> {
        self.answer()?;
        self.asked.lock().unwrap().0.push(Instant::now());
        self.answer()
    }

    async fn init_forceful_shutdown(&self) -> Result<StatusReport, ScriptedFault> {
        self.answer()?;
        self.asked.lock().unwrap().1.push(Instant::now());
        self.answer()
    }
}

/// `attempts` attempts a second apart.
pub(super) fn retry(attempts: Option<u32>) -> Retry {
    Retry { attempts, min_delay: Duration::from_secs(1), max_delay: Duration::from_secs(10) }
}
