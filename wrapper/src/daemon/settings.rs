//! The settings of `grit-wrapper run`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use super::callback::AllowedUrls;
use crate::supervise::Policy;
use crate::{
    daemon::serve::{http, listen},
    runner,
};

#[derive(Clone, Debug)]
pub struct Settings {
    /// The program of the runner and its arguments.
    pub command: Vec<OsString>,
    pub grpc_listen: Vec<listen::Address>,
    pub grpc_rules: listen::Rules,
    /// A unix socket on which clients can only read the status.
    pub status_listen: Option<listen::Address>,
    pub status_rules: listen::Rules,
    pub http: Option<http::Settings>,
    pub callbacks: AllowedUrls,
    pub policy: Policy,
    /// The deadline of a drain that a signal requests.
    pub drain_timeout: Option<Duration>,
    /// The default depends on the listen addresses.
    pub state_file: Option<PathBuf>,
    pub health: runner::Settings,
    /// `LISTEN_ADDRESS` for a runner without an address.
    pub runner_listen_address: Option<String>,
    /// The health level at which systemd is notified `READY=1`.
    pub ready_when: runner::Level,
}
