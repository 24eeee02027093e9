//! Texts for invalid values in the configuration.

use super::diagnostic::{Code, Explained};

pub(crate) fn host_keys_not_verified() -> Explained {
    Explained::new(
        Code::Notice,
        "Host keys are not verified",
        "Man-in-the-middle attacks are possible.",
        "Set `known_hosts` or `host_keys`, or `host_key` of the runner manager.",
    )
}
