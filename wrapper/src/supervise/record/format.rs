//! The format of the state file.

use serde::{Deserialize, Serialize};

use crate::supervise::{
    core::Supervision,
    process::{Identity, Origin, Program},
};

/// The content of the state file: the state of the supervision, and how its process is found.
///
/// Unknown fields are ignored, so that a previous wrapper can read the file after a downgrade. A field that a previous wrapper must not ignore, and
/// another state or phase, require a new format version. A new field is an `Option` or has a default: older files do not have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    version: Version,
    /// The wrapper that has written it.
    writer: Option<Identity>,
    pub(super) supervision: Supervision,
    /// Of the process that the state names.
    pub(super) origin: Origin,
    /// The program of the exec barrier, while the process waits there.
    pub(super) barrier: Option<Program>,
}

/// The format version, [`VERSION`]. Another version is not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Version {
    #[default]
    #[serde(rename = "1")]
    One,
}

pub(super) const VERSION: &str = "1";

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    OtherVersion {
        version: String,
        /// The PID of the runner, if it is where this version has it.
        runner: Option<u32>,
    },
    Broken(serde_json::Error),
}

impl Saved {
    pub(crate) fn new(supervision: &Supervision, origin: Option<&Origin>, barrier: Option<Program>) -> Self {
        let origin = origin.cloned().unwrap_or_default();
        let writer = Identity::own();
        Self { version: Version::One, writer, supervision: supervision.clone(), origin, barrier }
    }

    /// Whether this process has written it, before it executed another program.
    pub(super) fn is_own(&self) -> bool {
        self.writer.is_some() && self.writer == Identity::own()
    }

    /// Reads a file of this version.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let json: serde_json::Value = serde_json::from_slice(text).map_err(Unreadable::Broken)?;
        match json["version"].as_str() {
            Some(version) if version != VERSION => {
                let state = json["supervision"]["state"].as_object().and_then(|state| state.values().next());
                let pid = state.and_then(|state| state["child"]["process"]["pid"].as_u64());
                let runner = pid.and_then(|pid| pid.try_into().ok());
                Err(Unreadable::OtherVersion { version: version.to_owned(), runner })
            }
            _ => serde_json::from_value(json).map_err(Unreadable::Broken),
        }
    }
}

#[cfg(test)]
mod tests;
