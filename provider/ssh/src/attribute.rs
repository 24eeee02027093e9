//! Where a value comes from, for errors.

use std::fmt;

/// The attribute that a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// Of the entry of the runner manager.
    Manager(&'static str),
    /// Of `ssh` in the provider block.
    Ssh(&'static str),
    /// One element of a list in `ssh`.
    SshElement(&'static str, usize),
    /// Of `ssh` in the provider block, but set by its environment variable.
    Variable(&'static str),
    /// Of one SSH server in `ssh.proxy_jump`, counted from 0.
    Hop(usize, &'static str),
}

/// As users write it: `ssh.host_keys[1]`.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager(name) => f.write_str(name),
            Self::Ssh(name) => write!(f, "ssh.{name}"),
            Self::Variable(name) => write!(f, "GRIT_SSH_{}", name.to_uppercase()),
            Self::SshElement(name, index) => write!(f, "ssh.{name}[{index}]"),
            Self::Hop(index, name) => write!(f, "ssh.proxy_jump[{index}].{name}"),
        }
    }
}

/// An invalid value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{attribute}: {problem}")]
pub struct InvalidOption {
    pub attribute: Attribute,
    /// Why the value is invalid, and what is accepted.
    pub problem: String,
    /// The placeholder whose value is missing or refused, if the error is about one.
    pub placeholder: Option<&'static str>,
}

impl InvalidOption {
    pub(crate) fn new(attribute: Attribute, problem: String) -> Self {
        Self { attribute, problem, placeholder: None }
    }
}
