//! Attributes, values (null, unknown, known), paths, diagnostics, and the traits of resources.
//!
//! The types of schemas and values come from the `tf-provider` crate, which only this module uses, so that it can be replaced. The traits
//! are of this module, and so are [`Number`] and diagnostics without backtraces ([`DiagnosticsExt`]).

mod action;
mod attributes;
mod diagnostics;
mod dynamic;
mod function;
mod number;
mod provider;
mod resource;
mod unknown;

pub use action::{Action, Progress};
pub use attributes::{Attributes, attributes, computed, optional, required, schema, sensitive};
pub use attributes::{
    boolean, computed_as, computed_boolean, computed_number, computed_text, number, object, object_schema,
    required_object, required_text, secret, secret_map, secret_value, text, text_map, texts,
};
pub use diagnostics::{DiagnosticsExt, diagnostic};
pub use dynamic::{AnyValue, Dynamic};
pub use function::{Function, FunctionError, FunctionSchema, Parameter};
pub use number::Number;
pub use provider::Provider;
pub use resource::{DataSource, MoveSource, Resource};
pub use tf_provider::{
    AttributePath, AttributePathStep, Diagnostic, Diagnostics,
    schema::{
        Attribute, AttributeConstraint, AttributeType, Block, Description, NestedBlock, Schema, StringKind,
    },
    value::{Value, ValueEmpty, ValueNumber, ValueString},
};
pub use unknown::{holds_unknown, is_known};

/// A number that can be null or unknown, including fractions.
///
/// [`ValueNumber`] accepts only whole numbers, and fails to decode a fraction.
pub type ValueAnyNumber = Value<Number>;
