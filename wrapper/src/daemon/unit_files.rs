//! The files of the wrapper of a unit. The drop-in of the unit has the same paths.

use std::path::{Path, PathBuf};

use crate::{daemon::serve::listen::Address, supervise::UnitName};

/// Their directory. systemd keeps it until the next boot.
pub const FOLDER: &str = "/run/grit-wrapper";

/// The socket on which the wrapper of this unit always listens: for the commands of the unit's drop-in.
pub fn socket(unit: &UnitName) -> Address {
    Address::Unix(Path::new(FOLDER).join(format!("{unit}.sock")))
}

/// The default state file of the wrapper of this unit.
pub fn state_file(unit: &UnitName) -> PathBuf {
    Path::new(FOLDER).join(format!("{unit}.state"))
}
