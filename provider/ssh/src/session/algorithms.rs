//! The algorithms that are offered to a server.

use std::borrow::Cow;

use russh::{
    Preferred, SshId, client, compression,
    keys::{Algorithm, EcdsaCurve, HashAlg},
};

use crate::{limits::Limits, trust::HostTrust};

/// Host key types in order of preference, without SHA-1 signatures (`ssh-rsa` as an algorithm).
const HOST_KEY_ALGORITHMS: [Algorithm; 6] = [
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

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

/// Puts the types of known keys first: a server sends the first key type that it has, and a key of another type would look changed.
fn preferred(trust: &HostTrust) -> Preferred {
    let known: Vec<&str> = trust.key_types().collect();
    let wanted =
        HOST_KEY_ALGORITHMS.into_iter().filter(|it| !trust.excluded().iter().any(|name| name == type_of(it)));
    let (first, rest): (Vec<_>, Vec<_>) = wanted.partition(|algorithm| known.contains(&type_of(algorithm)));
    // Requests certificates only if an authority is known: a server with a certificate then does not send a plain key.
    let certificates = if trust.has_authorities() { HOST_KEY_ALGORITHMS.to_vec() } else { Vec::new() };
    Preferred {
        key: Cow::Owned([first, rest].concat()),
        host_key_certificates: Cow::Owned(certificates),
        compression: Cow::Borrowed(&[compression::NONE]),
        ..Preferred::DEFAULT
    }
}

/// The key type of an algorithm: the type of an RSA key is `ssh-rsa` for all signature algorithms.
fn type_of(algorithm: &Algorithm) -> &str {
    if matches!(algorithm, Algorithm::Rsa { .. }) { "ssh-rsa" } else { algorithm.as_str() }
}
