//! What the wrapper is to its host: signals, systemd, and the log.

pub mod logging;
pub mod signals;
pub mod systemd;
