//! Private keys and user certificates from text, with the damage repaired that texts suffer on their way through HCL.

use crate::transport::{Secret, error::KeyError};
use russh::keys::{self, Certificate, HashAlg, decode_secret_key, ssh_key};
use std::{fmt, sync::Arc};
use zeroize::Zeroizing;

/// A decrypted private key. Cheap to clone; `Debug` shows its type and fingerprint.
#[derive(Clone)]
pub(crate) struct PrivateKey(pub(super) Arc<keys::PrivateKey>);

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

/// A private key and the certificate that speaks for it.
#[derive(Debug, Clone)]
pub(crate) struct Certified {
    pub(super) key: PrivateKey,
    pub(super) certificate: Box<Certificate>,
}

/// Reads and decrypts a private key. Blocks: an encrypted key costs a tenth of a second and more.
///
/// `source` names where the text came from. A passphrase is ignored when the key is not encrypted.
pub(crate) fn load(text: &Secret, passphrase: Option<&Secret>, source: &str) -> Result<PrivateKey, KeyError> {
    let text = repair(text.expose());
    let format = Format::of(&text);
    let unusable = |problem: &str| KeyError::Unusable {
        source_name: source.to_owned(),
        format: format.to_string(),
        problem: problem.to_owned(),
    };
    if let Some(problem) = format.refused() {
        return Err(unusable(problem));
    }
    let encrypted = format.is_encrypted(&text);
    let passphrase = passphrase.filter(|_| encrypted).map(Secret::expose);
    if encrypted && passphrase.is_none() {
        return Err(KeyError::NoPassphrase { source_name: source.to_owned() });
    }
    match decode_secret_key(&text, passphrase) {
        Ok(key) => Ok(PrivateKey(Arc::new(key))),
        Err(keys::Error::KeyIsEncrypted) => Err(KeyError::NoPassphrase { source_name: source.to_owned() }),
        Err(error) if encrypted && format.fails_by_passphrase(&error) => {
            Err(KeyError::WrongPassphrase { source_name: source.to_owned() })
        }
        Err(_) if encrypted => Err(unusable(
            "its encryption is not supported, or the passphrase is wrong; `ssh-keygen -p -f KEY` writes it anew in OpenSSH's own format",
        )),
        // The decoder's words are of use to programmers only, and could quote the text.
        Err(_) => Err(unusable("the text is damaged or not complete")),
    }
}

/// Whether a text is a key that can be used, as far as can be told without its passphrase.
pub(crate) fn inspect(text: &Secret) -> Result<(), KeyError> {
    match load(text, None, "the text") {
        Ok(_) | Err(KeyError::NoPassphrase { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads a user certificate (the text of a `-cert.pub` file) and puts it to its key.
pub(crate) fn load_certificate(text: &str, key: &PrivateKey, source: &str) -> Result<Certified, KeyError> {
    let unusable = |problem| KeyError::Certificate { source_name: source.to_owned(), problem };
    let certificate = Certificate::from_openssh(text.trim())
        .map_err(|error| unusable(format!("it cannot be read ({error})")))?;
    if certificate.public_key() != key.0.public_key().key_data() {
        return Err(unusable(format!("it belongs to another key than {}", key.describe())));
    }
    Ok(Certified { key: key.clone(), certificate: Box::new(certificate) })
}

/// Formats of private keys, and what is often taken for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    OpenSsh,
    Pkcs1,
    Sec1,
    Pkcs8,
    Pkcs8Encrypted,
    Putty,
    PublicKey,
    Path,
    Other,
}

impl Format {
    fn of(text: &str) -> Self {
        let begin = |label: &str| text.contains(&format!("-----BEGIN {label}-----"));
        if begin("OPENSSH PRIVATE KEY") {
            Self::OpenSsh
        } else if begin("RSA PRIVATE KEY") {
            Self::Pkcs1
        } else if begin("EC PRIVATE KEY") {
            Self::Sec1
        } else if begin("ENCRYPTED PRIVATE KEY") {
            Self::Pkcs8Encrypted
        } else if begin("PRIVATE KEY") {
            Self::Pkcs8
        } else if text.starts_with("PuTTY-User-Key-File-") {
            Self::Putty
        } else if begin("PUBLIC KEY") || text.starts_with("ssh-") || text.starts_with("ecdsa-") {
            Self::PublicKey
        } else if !text.trim().contains('\n') && text.starts_with(['/', '~', '.']) && text.len() < 4096 {
            Self::Path
        } else {
            Self::Other
        }
    }

    /// What cannot be used whatever is inside.
    fn refused(self) -> Option<&'static str> {
        match self {
            Self::PublicKey => Some("the private key is needed, which is the file without .pub"),
            Self::Path => {
                Some("it looks like the path of a file; set private_key_path, or read it with file()")
            }
            Self::Other => Some(
                "it is none of the formats that OpenSSH writes; the text must begin with -----BEGIN …-----",
            ),
            _ => None,
        }
    }

    fn is_encrypted(self, text: &str) -> bool {
        match self {
            Self::OpenSsh => ssh_key::PrivateKey::from_openssh(text).is_ok_and(|key| key.is_encrypted()),
            Self::Pkcs1 | Self::Sec1 => text.contains("Proc-Type:") && text.contains("ENCRYPTED"),
            Self::Pkcs8Encrypted => true,
            Self::Putty => text
                .lines()
                .any(|line| line.strip_prefix("Encryption:").is_some_and(|cipher| cipher.trim() != "none")),
            _ => false,
        }
    }

    /// Whether an error of the decoder is what a wrong passphrase looks like in this format.
    fn fails_by_passphrase(self, error: &keys::Error) -> bool {
        let text = error.to_string();
        match self {
            // ssh-key's word for a checksum that does not fit, or padding that is none.
            Self::OpenSsh | Self::Putty => {
                matches!(error, keys::Error::SshKey(_)) && !text.contains("unsupported")
            }
            Self::Pkcs1 => matches!(error, keys::Error::Unpad(_)),
            Self::Pkcs8Encrypted => text.contains("decrypt"),
            _ => false,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenSsh => "OpenSSH",
            Self::Pkcs1 => "RSA PEM, PKCS#1",
            Self::Sec1 => "EC PEM, SEC1",
            Self::Pkcs8 => "PEM, PKCS#8",
            Self::Pkcs8Encrypted => "encrypted PEM, PKCS#8",
            Self::Putty => "PuTTY",
            Self::PublicKey => "a public key",
            Self::Path => "a path",
            Self::Other => "unknown format",
        })
    }
}

/// Undoes what heredocs, templates and environment variables do to a PEM text: indentation, trailing spaces, carriage returns, `\n` as
/// two characters, and lost line breaks.
fn repair(text: &str) -> Zeroizing<String> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let unescaped = if text.contains('\n') {
        Zeroizing::new(text.to_owned())
    } else {
        Zeroizing::new(text.replace("\\r", "").replace("\\n", "\n"))
    };
    let mut lines: Zeroizing<Vec<String>> = Zeroizing::new(Vec::new());
    for line in unescaped.lines() {
        // A head, a foot and the text between them on one line: breaks were lost, or turned into spaces.
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

fn looks_like_base64(line: &str) -> bool {
    line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/= \t".contains(&byte))
}

#[cfg(test)]
mod tests;
