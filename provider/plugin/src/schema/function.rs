//! Functions of the provider: `provider::grit::NAME(…)`.

use serde::{Serialize, de::DeserializeOwned};

use super::{AttributeType, Value};

/// A function. It has no side effects and reads nothing but its arguments: Terraform calls it in every walk, also before it configures the
/// provider, and requires the same result for the same arguments.
pub trait Function: Send + Sync + 'static {
    /// The arguments in order: a tuple, or a `Vec` for a variadic function.
    type Arguments: DeserializeOwned;
    type Output: Serialize;

    fn schema(&self) -> FunctionSchema;

    fn call(&self, arguments: Self::Arguments) -> Result<Value<Self::Output>, FunctionError>;
}

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

/// Why a function has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionError {
    /// Terraform writes it after the names of function and parameter.
    pub text: String,
    /// The position of the argument at fault.
    pub argument: Option<usize>,
}
