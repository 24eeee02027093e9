//! The recorded events of pictures. A test compares its run with the record in `docs/pictures/`, from which `tests/testkit/tests/pictures/`
//! draws.

use std::{fs, path::Path};

use grit_tests::lab::event::Event;
use serde::{Serialize, de::DeserializeOwned};

/// Set by `cargo xtask gen --record`: a test records its run.
const RECORD: &str = "GRIT_RECORD_PICTURES";

/// The seconds from one event to another, with milliseconds.
pub(crate) fn seconds(from: &Event, to: &Event) -> f64 {
    let seconds = to.at.as_secs_f64() - from.at.as_secs_f64();
    // Not -0.
    (seconds * 1000.0).round() / 1000.0 + 0.0
}

/// The record with this name, after it is replaced with this run where that is requested.
#[track_caller]
pub(crate) fn recorded<T: Serialize + DeserializeOwned>(name: &str, run: &T) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures").join(name);
    if std::env::var_os(RECORD).is_some() {
        fs::write(&path, serde_json::to_string_pretty(run).unwrap() + "\n").unwrap();
    }
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}
