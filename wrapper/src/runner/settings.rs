//! Settings of the health probes.

use std::time::Duration;

use super::runner_source::Source;

#[derive(Clone, Debug)]
pub struct Settings {
    pub source: Source,
    /// Minimum uptime of a healthy runner.
    pub min_uptime: Duration,
    /// Interval between probes of a runner at its maximum level.
    pub interval: Duration,
}

impl Settings {
    /// A runner with an invalid configuration exits earlier.
    pub const MIN_UPTIME: Duration = Duration::from_secs(2);
    /// Long enough for low costs, short enough to show the progress of a drain.
    pub const INTERVAL: Duration = Duration::from_secs(5);
}
