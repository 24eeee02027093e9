//! What a health check requires.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::gitlab::GitlabWord;
use crate::{client::Level, fleet::retry::Retry};

/// The required health, and the time limit.
#[derive(Debug, Clone)]
pub(crate) struct HealthPolicy {
    /// The start of the operation, from which `timeout` counts.
    pub start: Instant,
    pub timeout: Duration,
    /// The time for which the runner must stay healthy without interruption.
    pub stable_for: Duration,
    /// The number of successful jobs that [`Level::Working`] requires.
    pub min_jobs: u64,
    pub level: Level,
    /// The required version of the runner.
    pub expected_version: Option<String>,
    /// Start a runner that has exited.
    pub start_if_stopped: bool,
    /// GitLab must confirm the runner manager.
    pub gitlab: Option<Arc<GitlabWord>>,
    pub retry: Retry,
}
