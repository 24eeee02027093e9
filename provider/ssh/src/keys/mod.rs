//! Private keys and user certificates. Repairs the usual damage of key texts in HCL.

mod block;
mod cost;
pub(crate) mod error;
mod short_scalar;
pub(crate) mod store;

use crate::{
    keys::error::{KeyError, KeyProgram},
    secret::Secret,
};
use block::{Block, Format, looks_like_base64};
pub(crate) use cost::KdfLimits;
use std::{fmt, sync::Arc};

use russh::keys::{self, Algorithm, Certificate, HashAlg, decode_secret_key};
use zeroize::Zeroizing;

use cost::KdfProblem;

/// An RSA key of 16384 bits has 13,000 bytes. The time for longer keys grows with the square of their length.
const MAX_KEY_TEXT: usize = 64 << 10;

/// A decrypted private key. Cheap to clone; `Debug` shows its type and fingerprint.
#[derive(Clone)]
pub(crate) struct PrivateKey(pub(crate) Arc<keys::PrivateKey>);

impl PrivateKey {
    /// As `SHA256:…`.
    pub(crate) fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The type and the fingerprint, for errors and logs.
    pub(crate) fn describe(&self) -> String {
        format!("{} {}", self.0.algorithm().as_str(), self.fingerprint())
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.describe())
    }
}

/// A private key with its certificate.
#[derive(Debug, Clone)]
pub(crate) struct CertifiedKey {
    pub(crate) key: PrivateKey,
    pub(crate) certificate: Box<Certificate>,
}

/// Parses and decrypts a private key. Blocks: the key derivation of an encrypted key takes 0.1 s or more, at most half a minute; keys that
/// would take longer are rejected.
///
/// `source` is the name of the text in errors. A passphrase is ignored if the key is not encrypted.
pub(crate) fn load(text: &Secret, passphrase: Option<&Secret>, source: &str) -> Result<PrivateKey, KeyError> {
    load_within(&KdfLimits::USUAL, text, passphrase, source)
}

/// As [`load`], with limits for the key derivation.
pub(crate) fn load_within(
    limits: &KdfLimits,
    text: &Secret,
    passphrase: Option<&Secret>,
    source: &str,
) -> Result<PrivateKey, KeyError> {
    let text = repair(text.expose());
    let block = Block::of(&text);
    let source_name = || source.to_owned();
    let program = if block.format == Format::Putty { KeyProgram::Puttygen } else { KeyProgram::SshKeygen };
    let unusable = |problem: &str| KeyError::Unusable {
        source_name: source_name(),
        format: block.format.to_string(),
        problem: problem.to_owned(),
        program,
    };
    // The decoder's error could contain a part of the key.
    let damaged = || unusable("the key text is damaged or incomplete");
    if let Some(problem) = block.format.refused() {
        return Err(unusable(problem));
    }
    if block.text.len() > MAX_KEY_TEXT {
        return Err(unusable("it is larger than 64 KiB"));
    }
    if !block.is_sound {
        return Err(damaged());
    }
    let encrypted = block.is_encrypted();
    if encrypted {
        cost::check(&block, limits).map_err(|objection| match objection {
            KdfProblem::Damaged => damaged(),
            KdfProblem::TooCostly { asked, limit } => {
                KeyError::TooCostly { source_name: source_name(), asked, limit, program }
            }
        })?;
    }
    let passphrase = passphrase.filter(|_| encrypted).map(Secret::expose);
    if encrypted && passphrase.is_none() {
        return Err(KeyError::NoPassphrase { source_name: source_name() });
    }
    let decoded = decode_secret_key(block.text, passphrase);
    if decoded.is_err()
        && let Some(key) = short_scalar::read(&block.body, passphrase)
    {
        return Ok(PrivateKey(Arc::new(key)));
    }
    match decoded {
        Ok(key) if is_supported(&key.algorithm()) => Ok(PrivateKey(Arc::new(key))),
        Ok(key) => Err(unusable(&not_supported(key.algorithm().as_str()))),
        Err(keys::Error::UnknownAlgorithm(oid)) => Err(unusable(&not_supported(name_of(&oid.to_string())))),
        Err(keys::Error::KeyIsEncrypted) => Err(KeyError::NoPassphrase { source_name: source_name() }),
        Err(error) if encrypted && block.format.fails_by_passphrase(&error) => {
            Err(KeyError::WrongPassphrase { source_name: source_name(), program })
        }
        Err(_) if encrypted => Err(unusable(&format!(
            "its encryption is not supported, or the passphrase is wrong; `{}` converts the key to the OpenSSH format",
            program.convert()
        ))),
        Err(_) => Err(damaged()),
    }
}

/// Kinds of keys that can log in without a device: not DSA, and not the keys of security keys.
fn is_supported(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Ed25519 | Algorithm::Ecdsa { .. } | Algorithm::Rsa { .. })
}

fn not_supported(kind: &str) -> String {
    format!(
        "keys of the kind {kind} are not supported; use an Ed25519, ECDSA (P-256, P-384, P-521) or RSA key, or a key in an agent"
    )
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

/// Checks a key without its passphrase.
pub(crate) fn inspect(text: &Secret) -> Result<(), KeyError> {
    match load(text, None, "the text") {
        Ok(_) | Err(KeyError::NoPassphrase { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Parses a user certificate (the text of a `-cert.pub` file), which must be for this key.
pub(crate) fn load_certificate(text: &str, key: &PrivateKey, source: &str) -> Result<CertifiedKey, KeyError> {
    let unusable = |problem| KeyError::Certificate { source_name: source.to_owned(), problem };
    let certificate = read_certificate(text).map_err(unusable)?;
    if certificate.public_key() != key.0.public_key().key_data() {
        return Err(unusable(format!("it belongs to a different key than {}", key.describe())));
    }
    Ok(CertifiedKey { key: key.clone(), certificate: Box::new(certificate) })
}

pub(crate) fn read_certificate(text: &str) -> Result<Certificate, String> {
    Certificate::from_openssh(text.trim()).map_err(|error| {
        format!(
            "it cannot be parsed ({error}); use the file ending in -cert.pub that `ssh-keygen -s` created"
        )
    })
}

/// Reverses changes by heredocs, templates and environment variables: indentation, trailing spaces, carriage returns, `\n` as two
/// characters, and missing line breaks.
fn repair(text: &str) -> Zeroizing<String> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let unescaped = if text.contains('\n') {
        Zeroizing::new(text.to_owned())
    } else {
        Zeroizing::new(text.replace("\\r", "").replace("\\n", "\n"))
    };
    let mut lines: Zeroizing<Vec<String>> = Zeroizing::new(Vec::new());
    for line in unescaped.lines() {
        // Header, footer and content on one line: line breaks were removed, or replaced by spaces.
        for (index, part) in line.split("-----").enumerate() {
            let is_label = index % 2 == 1;
            if is_label {
                lines.push(format!("-----{part}-----"));
            } else if is_header(part) || !looks_like_base64(part) {
                lines.push(part.trim().to_owned());
            } else {
                lines.extend(part.split_whitespace().map(str::to_owned));
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    let mut repaired = Zeroizing::new(String::with_capacity(text.len() + 1));
    for line in lines.iter() {
        repaired.push_str(line);
        repaired.push('\n');
    }
    repaired
}

/// `Proc-Type: 4,ENCRYPTED`, and the lines of PuTTY's format.
fn is_header(line: &str) -> bool {
    line.contains(": ")
}

#[cfg(test)]
mod tests;
