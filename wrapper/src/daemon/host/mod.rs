//! What the wrapper is to its host: signals, systemd, the log, and the upgrade in place.

pub mod logging;
pub mod signals;
pub mod systemd;
pub(super) mod upgrade;
