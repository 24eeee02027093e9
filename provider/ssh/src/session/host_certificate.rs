//! Host certificates, and the conversion of host keys.

use russh::keys::{
    Algorithm, Certificate, HashAlg, PublicKey, ssh_key::certificate::CertType, ssh_key::public::KeyData,
};

use crate::{
    address::HostPort,
    host_text::{MAX_TEXT, shortened},
    trust::refusal::{HostKeyRefusal, HostKeyVerdict},
    trust::{self, HostKey, HostTrust},
};

pub(super) fn host_key(key: &PublicKey) -> Result<HostKey, russh::Error> {
    Ok(HostKey { key_type: key.algorithm().as_str().to_owned(), blob: key.to_bytes()? })
}

/// Accepts a host certificate that a trusted authority signed for this host, that is valid now, and that has no critical options.
pub(super) fn verify(
    shown: &Certificate,
    key: &HostKey,
    trust: &HostTrust,
    host: &HostPort,
) -> Result<(), Box<HostKeyRefusal>> {
    let authority = plain(shown.signature_key());
    trust.refuse_revoked(HostKeyVerdict::Revoked, key, key)?;
    if let Some(authority) = &authority {
        trust.refuse_revoked(HostKeyVerdict::RevokedAuthority, authority, key)?;
    }
    let problem = if trust.accepts_any() {
        return Ok(());
    } else if shown.cert_type() != CertType::Host {
        "it is a user certificate".to_owned()
    } else if !authority.as_ref().is_some_and(|key| trust.is_authority(key)) {
        // The plain key may be known: the certificate was requested because of an authority for other hosts.
        return trust.verify(key).map_err(|mut refusal| {
            let by = authority.map_or_else(|| "an unreadable key".to_owned(), |key| key.fingerprint());
            refusal.problem = Some(format!("it is signed by {by}, which is not a trusted authority"));
            refusal
        });
    } else if !is_allowed(&shown.signature().algorithm()) {
        let algorithm = shown.signature().algorithm();
        format!("its signature has the algorithm {algorithm}, which is not secure")
    } else if shown.valid_principals().is_empty() {
        "it has no principals".to_owned()
    } else if !trust::matches_any(shown.valid_principals().iter().map(String::as_str), host.host()) {
        format!("it is valid only for {}", shown.valid_principals().join(", "))
    } else if !shown.critical_options().is_empty() {
        let names: Vec<&str> = shown.critical_options().keys().map(String::as_str).collect();
        format!("it has unsupported critical options: {}", names.join(", "))
    } else if let Err(problem) = in_time(shown) {
        problem
    } else {
        return Ok(());
    };
    let mut refusal = trust.refusal(HostKeyVerdict::BadCertificate, key);
    refusal.problem = Some(shortened(problem, MAX_TEXT));
    Err(refusal)
}

/// The default of `CASignatureAlgorithms` in OpenSSH: neither SHA-1 (`ssh-rsa`) nor DSA.
pub(super) fn is_allowed(signature: &Algorithm) -> bool {
    use Algorithm::{Ecdsa, Ed25519, Rsa, SkEcdsaSha2NistP256, SkEd25519};
    matches!(signature, Ed25519 | Ecdsa { .. } | Rsa { hash: Some(_) } | SkEd25519 | SkEcdsaSha2NistP256)
}

/// Checks signature and validity period; the authority was checked before.
fn in_time(shown: &Certificate) -> Result<(), String> {
    let authority = shown.signature_key().fingerprint(HashAlg::Sha256);
    let Err(error) = shown.validate([&authority]) else { return Ok(()) };
    let now = std::time::SystemTime::now();
    Err(if shown.valid_before_time().is_some_and(|end| end <= now) {
        "it has expired".to_owned()
    } else if shown.valid_after_time().is_some_and(|start| start > now) {
        "it is not valid yet".to_owned()
    } else {
        format!("its signature is not valid: {error}")
    })
}

fn plain(key: &KeyData) -> Option<HostKey> {
    host_key(&PublicKey::from(key.clone())).ok()
}
