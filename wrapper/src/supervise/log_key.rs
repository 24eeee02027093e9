//! Keys of the fields in the wrapper's log. A value has the same key in every log line.

/// Requested change: `drain`, `cancel`, `start`, `reload`, `upgrade`.
pub const ACTION: &str = "action";
/// Configured listen address.
pub const ADDRESS: &str = "address";
pub const AGE_SECONDS: &str = "age_seconds";
/// Number of the attempt, from 1.
pub const ATTEMPT: &str = "attempt";
/// Actual listen address.
pub const BOUND: &str = "bound";
pub const CALLBACKS: &str = "callbacks";
pub const COMMAND: &str = "command";
pub const COUNT: &str = "count";
pub const DEADLINE_SECONDS: &str = "deadline_seconds";
pub const ERROR: &str = "error";
pub const EVENT: &str = "event";
/// Of the wrapper.
pub const EXIT_CODE: &str = "exit_code";
pub const FROM: &str = "from";
pub const GID: &str = "gid";
pub const ID: &str = "id";
/// Id of the drain that was joined.
pub const JOINED_ID: &str = "joined_id";
pub const LEVEL: &str = "level";
/// Timeout.
pub const LIMIT_SECONDS: &str = "limit_seconds";
/// Source file and line of a panic.
pub const LOCATION: &str = "location";
pub const MODE: &str = "mode";
pub const NAME: &str = "name";
/// Job requests of the runner that are open.
pub const OPEN_REQUESTS: &str = "open_requests";
pub const OUTCOME: &str = "outcome";
pub const PATH: &str = "path";
pub const PEER: &str = "peer";
pub const PID: &str = "pid";
pub const PROCESSES: &str = "processes";
pub const REASON: &str = "reason";
pub const REASONS: &str = "reasons";
pub const RETRY_IN: &str = "retry_in";
pub const RUNNER_PID: &str = "runner_pid";
pub const SIGNAL: &str = "signal";
pub const SOCKET: &str = "socket";
pub const STATUS: &str = "status";
pub const TARGET_URL: &str = "target_url";
pub const TO: &str = "to";
pub const TRANSPORT: &str = "transport";
pub const UID: &str = "uid";
