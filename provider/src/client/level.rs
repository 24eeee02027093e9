//! The health levels of a runner.

use std::fmt;

use grit_proto::wrapper_v1 as v1;

/// A health level. Each level includes the lower levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    None,
    Process,
    Ready,
    Polling,
    Working,
}

impl Level {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Ready => "ready",
            Self::Polling => "polling",
            Self::Working => "working",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<v1::Level> for Level {
    fn from(level: v1::Level) -> Self {
        match level {
            v1::Level::Unspecified | v1::Level::None => Self::None,
            v1::Level::Process => Self::Process,
            v1::Level::Ready => Self::Ready,
            v1::Level::Polling => Self::Polling,
            v1::Level::Working => Self::Working,
        }
    }
}
