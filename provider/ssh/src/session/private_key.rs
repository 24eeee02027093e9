//! Decoded private keys and user certificates.

use std::{fmt, sync::Arc};

use russh::keys::{
    self, Algorithm, Certificate, Error, HashAlg, decode_secret_key, ssh_key::public::KeyData,
};

use super::short_scalar;
use crate::user_files;

/// A decrypted private key. Cheap to clone; `Debug` shows its type and fingerprint.
#[derive(Clone)]
pub(crate) struct PrivateKey(pub(super) Arc<keys::PrivateKey>);

/// Why a text is not a private key for a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// It is encrypted, and there is no passphrase.
    Encrypted,
    /// The passphrase is wrong.
    Passphrase,
    /// A key of another kind: the usual name.
    Algorithm(String),
    Other,
}

impl PrivateKey {
    /// Decodes the text of a key. Some formats are read with a passphrase only if they are encrypted.
    pub(crate) fn decode(text: &str, passphrase: Option<&str>) -> Result<Self, DecodeError> {
        let key = decode_secret_key(text, passphrase).or_else(|error| match error {
            Error::KeyIsEncrypted => Err(DecodeError::Encrypted),
            Error::UnknownAlgorithm(oid) => Err(DecodeError::Algorithm(name_of(&oid.to_string()).to_owned())),
            error => short_scalar::read(text, passphrase).ok_or_else(|| {
                if passphrase.is_some() && is_of_passphrase(&error) {
                    DecodeError::Passphrase
                } else {
                    DecodeError::Other
                }
            }),
        })?;
        // Keys that log in without a device: not DSA, and not the keys of security keys.
        match key.algorithm() {
            Algorithm::Ed25519 | Algorithm::Ecdsa { .. } | Algorithm::Rsa { .. } => Ok(Self(Arc::new(key))),
            other => Err(DecodeError::Algorithm(other.as_str().to_owned())),
        }
    }

    /// As `SHA256:…`.
    pub(crate) fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The type and the fingerprint, for errors and logs.
    pub(crate) fn describe(&self) -> String {
        describe(self.0.public_key())
    }
}

/// The type and the fingerprint. A server can refuse an RSA key because of its size.
pub(super) fn describe(key: &keys::PublicKey) -> String {
    let size = match key.key_data() {
        KeyData::Rsa(key) => format!(" ({} bits)", key.key_size()),
        _ => String::new(),
    };
    format!("{} {}{size}", key.algorithm().as_str(), key.fingerprint(HashAlg::Sha256))
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.describe())
    }
}

/// Whether the error of a decryption means a wrong passphrase: a wrong checksum or padding.
fn is_of_passphrase(error: &Error) -> bool {
    match error {
        Error::SshKey(error) => !error.to_string().contains("unsupported"),
        Error::Unpad(_) => true,
        error => error.to_string().contains("decrypt"),
    }
}

/// The usual name of an algorithm or a curve that SSH does not use.
fn name_of(oid: &str) -> &str {
    match oid {
        "1.3.132.0.33" => "ECDSA P-224",
        "1.3.132.0.10" => "ECDSA secp256k1",
        "1.2.840.10040.4.1" => "DSA",
        "1.2.840.113549.1.1.10" => "RSA-PSS",
        "1.3.101.110" => "X25519",
        "1.3.101.113" => "Ed448",
        oid => oid,
    }
}

/// A private key with its certificate.
#[derive(Debug, Clone)]
pub(crate) struct CertifiedKey {
    pub(super) key: PrivateKey,
    pub(super) certificate: Box<Certificate>,
}

impl CertifiedKey {
    /// Parses the text of a `-cert.pub` file, which must be for this key. The error is a clause about it.
    pub(crate) fn parse(text: &str, key: &PrivateKey) -> Result<Self, String> {
        let certificate = certificate(text)?;
        if certificate.public_key() != key.0.public_key().key_data() {
            return Err(format!("it belongs to a different key than {}", key.describe()));
        }
        Ok(Self { key: key.clone(), certificate: Box::new(certificate) })
    }
}

/// Checks the text of a user certificate.
pub(crate) fn check_certificate(text: &str) -> Result<(), String> {
    certificate(text).map(drop)
}

fn certificate(text: &str) -> Result<Certificate, String> {
    Certificate::from_openssh(user_files::without_mark(text).trim()).map_err(|error| {
        format!(
            "it cannot be parsed ({error}); use the file ending in -cert.pub that `ssh-keygen -s` created"
        )
    })
}
