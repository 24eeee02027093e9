//! Texts for requests of Terraform that the provider cannot process, and for bugs of the provider.

use std::fmt::Display;

use super::Problem;

pub(crate) fn aborted(call: &str, error: impl Display) -> Problem {
    Problem::new(
        "interrupted",
        "Call was aborted",
        format!("The {call} was aborted: {error}."),
        "Run Terraform again.",
    )
}

pub(crate) fn unknown_type(kind: &str, name: &str) -> Problem {
    Problem::new(
        "invalid_config",
        "Unknown type",
        format!("This provider has no {kind} `{name}`."),
        "Check the name, and the version of the provider.",
    )
}

/// Terraform requested a change from null to null.
pub(crate) fn no_change(call: &str) -> Problem {
    Problem::bug(format!("Terraform requested {call} without a prior value and without a new value"))
}

pub(crate) fn invalid_json(what: &str, error: impl Display) -> Problem {
    Problem::bug(format!("Terraform sent {what} as invalid JSON: {error}"))
}

/// The code of the provider cannot decode a value that matches its schema.
pub(crate) fn cannot_decode(what: &str, error: impl Display) -> Problem {
    Problem::bug(format!("The provider cannot decode {what}: {error}"))
}

pub(crate) fn cannot_encode(what: &str, error: impl Display) -> Problem {
    Problem::bug(format!("The provider cannot encode {what}: {error}"))
}

const USE_NEWER_PROVIDER: &str = "Use the release of the provider that wrote the state, or a newer release.";

pub(crate) fn stored_state_empty(name: &str) -> Problem {
    Problem::new(
        "invalid_config",
        "Invalid stored state",
        format!("The state of this `{name}` has the format of Terraform 0.11 or older, or it is empty."),
        USE_NEWER_PROVIDER,
    )
}

pub(crate) fn stored_state_invalid(name: &str, error: impl Display) -> Problem {
    Problem::new(
        "invalid_config",
        "Invalid stored state",
        format!("The state of this `{name}` is not valid JSON: {error}."),
        "Restore the state from a backup.",
    )
}

pub(crate) fn state_version(name: &str, version: i64) -> Problem {
    Problem::new(
        "invalid_config",
        "Unsupported state version",
        format!(
            "The state of this `{name}` has schema version {version}, which this release of the provider does not support."
        ),
        USE_NEWER_PROVIDER,
    )
}

pub(crate) fn import_not_supported(name: &str) -> Problem {
    Problem::new(
        "refused",
        format!("{name} cannot be imported"),
        "The resource exists only in Terraform's state.",
        "Add the resource block and apply.",
    )
}
