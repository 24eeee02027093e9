//! Durations as texts.

pub(crate) use grit_proto::duration::{human, parse};

/// The accepted format, for error messages.
pub(crate) const ACCEPTED: &str =
    "one or more numbers with a unit (ms, s, m, h, d), such as \"90s\", \"1h30m\" or \"2d\"";
