//! The default path of the state file.

use std::{env, path::PathBuf};

use tracing::warn;

use crate::daemon::serve::listen::Address;
use crate::supervise::record::folder::beside;

/// The directory of systemd's `RuntimeDirectory=`; several are separated by colons.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// The name of the file of a wrapper without a unix socket.
const NAME: &str = "wrapper.state";

/// The state file of a wrapper without `--state-file`. `listen`: its addresses.
/// Without such a file, the log has a warning.
pub(super) fn default_state_file(listen: &[Address]) -> Option<PathBuf> {
    let unix = listen.iter().find_map(|address| match address {
        Address::Unix(path) => Some(path),
        Address::Tcp(_) => None,
    });
    if let Some(socket) = unix {
        return Some(beside(socket, ".state"));
    }
    let folder = env::var_os(RUNTIME_DIRECTORY).and_then(|value| env::split_paths(&value).next());
    let folder = folder.filter(|folder| folder.is_absolute());
    if folder.is_none() {
        warn!(
            "no state file, because the wrapper has no unix socket and RUNTIME_DIRECTORY is not set: if this wrapper is killed, the next \
             wrapper starts a second runner, and drains and callbacks are lost. Set --state-file"
        );
    }
    folder.map(|folder| folder.join(NAME))
}
