//! Texts for requests of Terraform that the provider cannot process.

use grit_plugin::Problem;

use super::code::Code;

/// `unknown`: Terraform configured the provider with an unknown value.
pub(crate) fn not_configured(unknown: bool) -> Problem {
    let happened = if unknown {
        "The provider block contains a value that is not known yet."
    } else {
        "Terraform has not configured the provider."
    };
    Problem::new(
        Code::InvalidConfig,
        "Provider is not configured",
        happened,
        "In the provider block, use only values that do not depend on resources of the same apply.",
    )
}

/// A data source cannot be read with an unknown provider block. Terraform reads it in the plan unless a dependency of it changes.
pub(crate) fn not_configured_at_read() -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "Data source cannot be read in this plan",
        "The provider block contains a value that is not known before the apply, so no runner manager can be reached in the plan.",
        "Add `depends_on` to the data source, with the resource that the provider block uses. Terraform then reads the data source in the \
         apply. Alternatively, use only values in the provider block that do not depend on resources of the same apply.",
    )
}
