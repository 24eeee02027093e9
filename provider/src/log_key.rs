//! The keys of the fields in the log. A value has the same key in all log lines.

/// Id of the drain that the wrapper carries out.
pub(crate) const DRAINED_BY: &str = "drained_by";
pub(crate) const ERROR: &str = "error";
/// Number of consecutive failed calls.
pub(crate) const FAILURES: &str = "failures";
/// The drain became forceful at its deadline.
pub(crate) const FORCED: &str = "forced";
/// The request is for a forceful shutdown.
pub(crate) const FORCEFUL: &str = "forceful";
/// Another request had started the shutdown.
pub(crate) const JOINED: &str = "joined";
/// Number of running jobs, and the oldest one.
pub(crate) const LEFT: &str = "left";
pub(crate) const LEVEL: &str = "level";
/// Key of the runner manager.
pub(crate) const MANAGER: &str = "manager";
/// The condition that is not met.
pub(crate) const MISSING: &str = "missing";
/// Problems of a shutdown in progress, from the wrapper.
pub(crate) const PROBLEMS: &str = "problems";
pub(crate) const PROGRESS: &str = "progress";
pub(crate) const OUTCOME: &str = "outcome";
pub(crate) const REASON: &str = "reason";
pub(crate) const STATUS: &str = "status";
/// Time since the start of the operation.
pub(crate) const WAITED: &str = "waited";
