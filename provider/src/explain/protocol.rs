//! Texts for requests of Terraform that the provider cannot process, and for bugs of the provider.

use std::fmt::Display;

use super::diagnostic::{Code, Explained};

pub(crate) fn bug(problem: impl Display) -> Explained {
    Explained::new(
        Code::Bug,
        "Provider bug",
        format!("{problem}."),
        "Report this bug with the log of a run with TF_LOG_PROVIDER=debug. The log contains no secrets.",
    )
}

pub(crate) fn aborted(call: &str, error: impl Display) -> Explained {
    Explained::new(
        Code::Interrupted,
        "Call was aborted",
        format!("The {call} was aborted: {error}."),
        "Run Terraform again.",
    )
}

pub(crate) fn unknown_type(kind: &str, name: &str) -> Explained {
    Explained::new(
        Code::InvalidConfig,
        "Unknown type",
        format!("This provider has no {kind} `{name}`."),
        "Check the name, and the version of the provider.",
    )
}

/// Terraform requested a change from null to null.
pub(crate) fn no_change(call: &str) -> Explained {
    bug(format!("Terraform requested {call} without a prior value and without a new value"))
}

pub(crate) fn invalid_json(what: &str, error: impl Display) -> Explained {
    bug(format!("Terraform sent {what} as invalid JSON: {error}"))
}

/// The code of the provider cannot decode a value that matches its schema.
pub(crate) fn cannot_decode(what: &str, error: impl Display) -> Explained {
    bug(format!("The provider cannot decode {what}: {error}"))
}

pub(crate) fn cannot_encode(what: &str, error: impl Display) -> Explained {
    bug(format!("The provider cannot encode {what}: {error}"))
}

/// `unknown`: Terraform configured the provider with an unknown value.
pub(crate) fn not_configured(unknown: bool) -> Explained {
    let happened = if unknown {
        "The provider block contains a value that is not known yet."
    } else {
        "Terraform has not configured the provider."
    };
    Explained::new(
        Code::InvalidConfig,
        "Provider is not configured",
        happened,
        "In the provider block, use only values that do not depend on resources of the same apply.",
    )
}

/// A data source cannot be read with an unknown provider block. Terraform reads it in the plan unless a dependency of it changes.
pub(crate) fn not_configured_at_read() -> Explained {
    Explained::new(
        Code::InvalidConfig,
        "Data source cannot be read in this plan",
        "The provider block contains a value that is not known before the apply, so no runner manager can be reached in the plan.",
        "Add `depends_on` to the data source, with the resource that the provider block uses: while that resource has a planned change, \
         Terraform reads the data source in the apply. Or use only values in the provider block that do not depend on resources of the same \
         apply.",
    )
}

const USE_NEWER_PROVIDER: &str = "Use the release of the provider that wrote the state, or a newer release.";

pub(crate) fn stored_state_empty(name: &str) -> Explained {
    Explained::new(
        Code::InvalidConfig,
        "Invalid stored state",
        format!("The state of this `{name}` has the format of Terraform 0.11 or older, or it is empty."),
        USE_NEWER_PROVIDER,
    )
}

pub(crate) fn stored_state_invalid(name: &str, error: impl Display) -> Explained {
    Explained::new(
        Code::InvalidConfig,
        "Invalid stored state",
        format!("The state of this `{name}` is not valid JSON: {error}."),
        "Restore the state from a backup.",
    )
}

pub(crate) fn state_version(name: &str, version: i64) -> Explained {
    Explained::new(
        Code::InvalidConfig,
        "Unsupported state version",
        format!(
            "The state of this `{name}` has schema version {version}, which this release of the provider does not support."
        ),
        USE_NEWER_PROVIDER,
    )
}

pub(crate) fn moved_not_supported(name: &str, from: &str, provider: &str) -> Explained {
    Explained::new(
        Code::Refused,
        "Unsupported `moved` source",
        format!(
            "A `moved` block moves an object of type `{from}` of {provider} to `{name}`, which is not supported."
        ),
        "Remove the `moved` block. Then destroy the old object, or remove it from the state with a `removed` block.",
    )
}

/// `effect`: what creating the resource does.
pub(crate) fn import_not_supported(name: &str, effect: &str) -> Explained {
    Explained::new(
        Code::Refused,
        format!("{name} cannot be imported"),
        "The resource exists only in Terraform's state.",
        format!("Add the resource block and apply: creating the resource {effect}."),
    )
}
