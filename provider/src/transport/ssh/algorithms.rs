//! What we offer to a server.

use std::borrow::Cow;

use russh::{
    Preferred, SshId, client, compression,
    keys::{Algorithm, EcdsaCurve, HashAlg},
};

use crate::transport::{limits::Limits, trust::HostTrust};

/// Host key types, best first. SHA-1 signatures (`ssh-rsa` as an algorithm) are not among them.
const HOST_KEYS: [Algorithm; 6] = [
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// russh's configuration for a session with this host.
pub(super) fn config(trust: &HostTrust, limits: &Limits) -> client::Config {
    client::Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-grit_", env!("CARGO_PKG_VERSION")))),
        preferred: preferred(trust),
        keepalive_interval: Some(limits.keepalive_interval),
        keepalive_max: limits.keepalive_max,
        inactivity_timeout: Some(limits.inactivity()),
        ..client::Config::default()
    }
}

/// The types of known keys come first: a server shows the first one that it has, and any other would look like a changed key.
fn preferred(trust: &HostTrust) -> Preferred {
    let known: Vec<&str> = trust.key_types().collect();
    let wanted = HOST_KEYS.into_iter().filter(|it| !trust.excluded().iter().any(|name| name == type_of(it)));
    let (first, rest): (Vec<_>, Vec<_>) = wanted.partition(|algorithm| known.contains(&type_of(algorithm)));
    // Certificates are asked for only where an authority is known, because a server that has one shows no bare key then.
    let certificates = if trust.has_authorities() { HOST_KEYS.to_vec() } else { Vec::new() };
    Preferred {
        key: Cow::Owned([first, rest].concat()),
        host_key_certificates: Cow::Owned(certificates),
        compression: Cow::Borrowed(&[compression::NONE]),
        ..Preferred::DEFAULT
    }
}

/// The type of the key behind an algorithm: an RSA key is `ssh-rsa`, whatever it signs with.
fn type_of(algorithm: &Algorithm) -> &str {
    if matches!(algorithm, Algorithm::Rsa { .. }) { "ssh-rsa" } else { algorithm.as_str() }
}
