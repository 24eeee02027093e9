//! Why a private key cannot be used.

/// Contains no part of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("{path} cannot be read: {problem}")]
    Unreadable { path: String, problem: String },
    #[error("the key of {source_name} is encrypted, and no passphrase is configured")]
    NoPassphrase { source_name: String },
    /// `check`: the command that shows whether the passphrase is right.
    #[error("the passphrase for the key of {source_name} is wrong")]
    WrongPassphrase { source_name: String, check: &'static str },
    #[error("the certificate {source_name} cannot be used: {problem}")]
    Certificate { source_name: String, problem: String },
    /// `check`: the command that shows whether the key can be read.
    #[error("the key of {source_name} ({format}) cannot be used: {problem}")]
    Unusable { source_name: String, format: &'static str, problem: String, check: &'static str },
}
