//! Settings of the health probes.

use std::time::Duration;

use super::runner_source::Source;

#[derive(Clone, Debug)]
pub struct Settings {
    pub source: Source,
    /// Interval between probes of a runner at its maximum level.
    pub interval: Duration,
}

impl Settings {
    /// Long enough for low costs, short enough to show the progress of a drain.
    pub const INTERVAL: Duration = Duration::from_secs(5);
}
