//! The format of the state file.

use serde::{Deserialize, Serialize};

use crate::supervise::core::{ChildInfo, Supervision};

/// The content of the state file: the state of the supervision, and how its process is found.
///
/// Unknown fields are ignored, so that a previous wrapper can read the file after a downgrade. A field that a previous wrapper must not ignore, and
/// another state or phase, require a new format version. A new field is an `Option` or has a default: older files do not have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    version: Version,
    pub supervision: Supervision,
    /// systemd's id of the start of the process that the state names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invocation: Option<String>,
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
pub(crate) enum Unreadable {
    OtherVersion {
        version: String,
        /// The PID of the runner, if it is where this version has it.
        runner: Option<u32>,
    },
    Broken(serde_json::Error),
}

impl Saved {
    pub(crate) fn new(supervision: &Supervision, invocation: Option<&str>) -> Self {
        Self {
            version: Version::One,
            supervision: supervision.clone(),
            invocation: invocation.map(str::to_owned),
        }
    }

    /// The process that the state names, which may have exited.
    pub(crate) fn process(&self) -> Option<ChildInfo> {
        self.supervision.state.child()
    }

    /// The same process, and systemd's id of its start.
    pub(crate) fn process_of_unit(&self) -> Option<(ChildInfo, String)> {
        Some((self.process()?, self.invocation.clone()?))
    }

    /// Reads a file of this version.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        // A wrapper exited normally, or the power failed, which also ended the runner.
        if text.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace()) {
            return Ok(Self::default());
        }
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
