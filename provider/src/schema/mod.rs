//! What a resource is made of: attributes, values (null, unknown, known), paths, diagnostics, and the traits to implement.
//!
//! The typed parts come from the `tf-provider` crate, and this module is the only one that names it: the rest of the provider imports
//! them from here, so that leaving that crate would change this module alone. Beside them stands what the crate cannot say:
//! [`ResourceExt`], [`Provider`] with its typed configuration, [`Number`], and diagnostics without backtraces ([`DiagnosticsExt`]).

mod attributes;
mod diagnostics;
mod number;
mod provider;
mod resource;
mod unknown;

pub use attributes::{attributes, computed, optional, required, schema, sensitive};
pub use diagnostics::{DiagnosticsExt, diagnostic};
pub use number::Number;
pub use provider::Provider;
pub use resource::{MoveSource, ResourceExt};
pub use tf_provider::{
    AttributePath, AttributePathStep, DataSource, Diagnostic, Diagnostics, Resource,
    schema::{Attribute, AttributeConstraint, AttributeType, Block, Description, Schema, StringKind},
    value::{Value, ValueEmpty, ValueNumber, ValueString},
};
pub(crate) use unknown::{holds_unknown, is_known};

/// A value that can be null or unknown and holds any number that Terraform has, fractions too.
///
/// [`ValueNumber`] takes whole numbers only, and refuses a fraction while it is decoded.
pub type ValueAnyNumber = Value<Number>;
