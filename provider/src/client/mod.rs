//! Typed client of a wrapper: the calls of upstream's service, each with its deadline, over a tunnel that comes back when it is lost.

mod error;

pub use error::ClientError;

use crate::transport::{Connector, Target};
use std::{collections::HashMap, fmt, sync::Arc};

/// Talks to the wrapper of one runner manager. Cheap to clone; clones share the connection.
///
/// Nothing is connected before the first call. A call that finds the tunnel broken reports why, and the next call opens a new one, on
/// the same SSH session where that still lives. Calls may run side by side.
///
/// Dropping a call's future abandons the call and leaves the connection to the others; a shutdown that the wrapper has read goes on.
#[derive(Debug, Clone)]
pub struct WrapperClient {
    target: Arc<Target>,
    connector: Connector,
}

impl Connector {
    /// A client of this manager's wrapper. Connects to nothing yet.
    pub fn client(&self, target: Target) -> WrapperClient {
        WrapperClient { target: Arc::new(target), connector: self.clone() }
    }
}

impl WrapperClient {
    /// The manager it talks to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What the runner process does now.
    pub async fn check_status(&self) -> Result<StatusReport, ClientError> {
        Err(self.unwritten("CheckStatus"))
    }

    /// Asks for a graceful shutdown: no new jobs, the running ones finish, then the process ends. Returns when the wrapper has taken the
    /// order, long before the end. Asking again is harmless.
    pub async fn init_graceful_shutdown(
        &self,
        callback: Option<ShutdownCallback>,
    ) -> Result<StatusReport, ClientError> {
        let _ = callback;
        Err(self.unwritten("InitGracefulShutdown"))
    }

    /// Asks for a forceful shutdown: running jobs are aborted. Returns when the wrapper has taken the order.
    pub async fn init_forceful_shutdown(&self) -> Result<StatusReport, ClientError> {
        Err(self.unwritten("InitForcefulShutdown"))
    }

    fn unwritten(&self, method: &'static str) -> ClientError {
        let _ = &self.connector;
        ClientError::Status {
            method,
            code: tonic::Code::Unimplemented,
            message: "no transport yet".to_owned(),
        }
    }
}

/// The answer of every call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    pub status: RunnerStatus,
    /// Why the process ended or could not be started, in the wrapper's words; empty when there is nothing to tell.
    pub failure_reason: String,
}

/// What the runner process does, as far as the wrapper says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunnerStatus {
    Running,
    /// A shutdown has begun and the process still lives.
    InShutdown,
    /// The process has ended.
    Stopped,
    /// The wrapper does not know (0), or says something that this version has no word for (the number). Never to be taken for stopped.
    Unknown(i32),
}

impl fmt::Display for RunnerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::InShutdown => f.write_str("in_shutdown"),
            Self::Stopped => f.write_str("stopped"),
            Self::Unknown(0) => f.write_str("unknown"),
            Self::Unknown(number) => write!(f, "unknown ({number})"),
        }
    }
}

/// An HTTP request that the wrapper makes once the runner process has ended. Its headers may hold credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ShutdownCallback {
    pub url: String,
    pub method: String,
    pub headers: HashMap<String, String>,
}

impl fmt::Debug for ShutdownCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownCallback").field("method", &self.method).finish_non_exhaustive()
    }
}
