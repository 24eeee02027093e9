//! The marker in the environment of a runner's processes.

use std::{fs, io};

use serde::{Deserialize, Serialize};

/// The variable that only a runner's processes have. Its value is a list: a wrapper may run in a job of another wrapper's runner.
pub const VARIABLE: &str = "GRIT_WRAPPER_RUNNER";

/// The variable with the path of the state file of the runner's wrapper. If the file was removed, the next wrapper finds the runner by it.
pub const STATE_FILE_VARIABLE: &str = "GRIT_WRAPPER_RUNNER_STATE_FILE";

/// A unique value in the environment of one runner's processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker(String);

impl Marker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of [`VARIABLE`] for the runner. `outer` is the value of the wrapper, which may run in a job of another wrapper's runner.
    pub(super) fn value(&self, outer: &str) -> String {
        if outer.is_empty() { self.0.clone() } else { format!("{outer},{}", self.0) }
    }

    /// The marker in the value of [`VARIABLE`] of a runner.
    pub(super) fn of_value(value: &str) -> Option<Self> {
        value.rsplit(',').next().map(|marker| Self(marker.to_owned())).filter(Self::is_valid)
    }

    /// Whether a marker that was read from a file can be part of a path.
    pub(super) fn is_valid(&self) -> bool {
        self.0.len() == 36 && self.0.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    }
}
