//! The definition of a function.

use super::AttributeType;

/// The definition of a function, as sent to Terraform. Descriptions are markdown.
#[derive(Debug, Clone)]
pub struct FunctionSchema {
    pub summary: &'static str,
    pub description: &'static str,
    pub parameters: Vec<Parameter>,
    pub variadic: Option<Parameter>,
    pub returns: AttributeType,
}

/// A parameter. Terraform refuses null for it.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: AttributeType,
    /// Whether the function accepts values that are unknown or contain unknown parts. Otherwise its result is unknown then.
    pub allow_unknown: bool,
    pub description: &'static str,
}
