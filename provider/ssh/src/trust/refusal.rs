//! Why a host key was rejected.

use std::fmt;

use crate::attribute::Attribute;

/// Why a host key was rejected.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{verdict}")]
pub struct HostKeyRefusal {
    pub verdict: HostKeyVerdict,
    /// The type of the host's key, such as `ssh-ed25519`.
    pub key_type: String,
    /// The fingerprint of the host's key: `SHA256:…`.
    pub fingerprint: String,
    /// The keys known for this host, the trusted authorities, or the revoked key.
    pub expected: Vec<ExpectedKey>,
    /// The known_hosts line that would accept the host's key.
    pub line: String,
    /// The sources that were searched, such as `/root/.ssh/known_hosts` or `ssh.known_hosts`, each with its content or its error.
    pub searched: Vec<String>,
    /// Why the host certificate is not accepted.
    pub problem: Option<String>,
}

/// The result of a host key check that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyVerdict {
    /// No source has a key for this host.
    #[error("the host key is unknown")]
    Unknown,
    /// The sources have only other keys for this host.
    #[error("the host key is not the expected key")]
    Changed,
    /// A `@revoked` line has this key.
    #[error("the host key is revoked")]
    Revoked,
    /// A `@revoked` line has the key of the authority that signed the host certificate.
    #[error("the authority of the host certificate is revoked")]
    RevokedAuthority,
    /// A host certificate that has expired, is for another host, or is not signed by a trusted authority.
    #[error("the host certificate is not accepted")]
    BadCertificate,
}

/// A key that would have been accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedKey {
    pub key_type: String,
    pub fingerprint: String,
    pub source: KeyOrigin,
}

/// Where a known host key was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOrigin {
    /// An attribute that holds the key or its fingerprint.
    Attribute(Attribute),
    /// A line of a known_hosts file, as `file:line`.
    Line(String),
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(attribute) => attribute.fmt(f),
            Self::Line(line) => f.write_str(line),
        }
    }
}
