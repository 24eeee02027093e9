//! The settings of `grit-wrapper run`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use super::callback::AllowedUrls;
use crate::supervise::{Policy, UnitName};
use crate::{
    daemon::serve::{http, listen},
    runner,
};

/// What the wrapper supervises.
#[derive(Clone, Debug)]
pub enum Target {
    /// A child: the program of the runner and its arguments.
    Command(Vec<OsString>),
    /// The main process of a unit.
    Unit(UnitName),
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub target: Target,
    /// Drain the runner at once, and exit after it.
    pub drain_at_start: bool,
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
    /// A command for `/bin/sh`, after each exit of the runner.
    pub on_exit: Option<String>,
    /// `LISTEN_ADDRESS` for a runner without an address.
    pub runner_listen_address: Option<String>,
}
