//! Where trusted host keys come from.

use std::path::PathBuf;

/// The sources of trusted host keys. All sources are used.
#[derive(Debug, Clone, Default)]
pub struct TrustSources {
    /// Lines in the format of a known_hosts file.
    pub known_hosts: Option<String>,
    /// Whether an environment variable has set `known_hosts`, for errors.
    pub known_hosts_variable: bool,
    pub known_hosts_files: Vec<PathBuf>,
    /// Public keys (`ssh-ed25519 AAAA…`) and `SHA256:` fingerprints that are accepted from any host.
    pub host_keys: Vec<String>,
    /// Public keys of authorities whose host certificates are accepted.
    pub host_ca: Vec<String>,
    /// Accept any host key: man-in-the-middle attacks are possible.
    pub insecure_ignore_host_key: bool,
}
