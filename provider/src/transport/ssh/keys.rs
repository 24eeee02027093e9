//! Private keys and user certificates from text, with the damage repaired that texts suffer on their way through HCL.

mod cost;

use crate::transport::{Secret, error::KeyError};
use base64::{Engine as _, engine::general_purpose::STANDARD};
pub(crate) use cost::Limits;
use cost::Objection;
use russh::keys::{self, Certificate, HashAlg, decode_secret_key, ssh_key};
use std::{fmt, sync::Arc};
use zeroize::Zeroizing;

/// An RSA key of 16384 bits has 13 000 bytes. The arithmetic of longer ones takes the square of their length.
const LONGEST: usize = 64 << 10;

/// How the body of a key in OpenSSH's own format begins whose cipher is `none`: the magic, a length, and the name.
const OPENSSH_NOT_ENCRYPTED: &[u8] = b"openssh-key-v1\0\0\0\0\x04none";

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

/// Reads and decrypts a private key. Blocks: an encrypted key costs a tenth of a second and more, up to half a minute where its file asks
/// for that; one that asks for more is refused.
///
/// `source` names where the text came from. A passphrase is ignored when the key is not encrypted.
pub(crate) fn load(text: &Secret, passphrase: Option<&Secret>, source: &str) -> Result<PrivateKey, KeyError> {
    load_within(&Limits::USUAL, text, passphrase, source)
}

/// As [`load`], with limits on what is done for the passphrase.
pub(crate) fn load_within(
    limits: &Limits,
    text: &Secret,
    passphrase: Option<&Secret>,
    source: &str,
) -> Result<PrivateKey, KeyError> {
    let text = repair(text.expose());
    let block = Block::of(&text);
    let source_name = || source.to_owned();
    let unusable = |problem: &str| KeyError::Unusable {
        source_name: source_name(),
        format: block.format.to_string(),
        problem: problem.to_owned(),
    };
    // The decoder's words are of use to programmers only, and could quote the text.
    let damaged = || unusable("the key text is damaged or incomplete");
    if let Some(problem) = block.format.refused() {
        return Err(unusable(problem));
    }
    if block.text.len() > LONGEST {
        return Err(unusable("it is larger than 64 KiB"));
    }
    if !block.is_sound {
        return Err(damaged());
    }
    let encrypted = block.is_encrypted();
    if encrypted {
        cost::check(&block, limits).map_err(|objection| match objection {
            Objection::Damaged => damaged(),
            Objection::TooCostly { asked, limit } => {
                KeyError::TooCostly { source_name: source_name(), asked, limit }
            }
        })?;
    }
    let passphrase = passphrase.filter(|_| encrypted).map(Secret::expose);
    if encrypted && passphrase.is_none() {
        return Err(KeyError::NoPassphrase { source_name: source_name() });
    }
    match decode_secret_key(block.text, passphrase) {
        Ok(key) => Ok(PrivateKey(Arc::new(key))),
        Err(keys::Error::KeyIsEncrypted) => Err(KeyError::NoPassphrase { source_name: source_name() }),
        Err(error) if encrypted && block.format.fails_by_passphrase(&error) => {
            Err(KeyError::WrongPassphrase { source_name: source_name() })
        }
        Err(_) if encrypted => Err(unusable(
            "its encryption is not supported, or the passphrase is wrong; `ssh-keygen -p -f KEY` converts the key to the OpenSSH format",
        )),
        Err(_) => Err(damaged()),
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
    let certificate = read_certificate(text).map_err(unusable)?;
    if certificate.public_key() != key.0.public_key().key_data() {
        return Err(unusable(format!("it belongs to a different key than {}", key.describe())));
    }
    Ok(Certified { key: key.clone(), certificate: Box::new(certificate) })
}

/// A certificate, whatever its key.
pub(crate) fn read_certificate(text: &str) -> Result<Certificate, String> {
    Certificate::from_openssh(text.trim()).map_err(|error| {
        format!(
            "it cannot be parsed ({error}); use the file ending in -cert.pub that `ssh-keygen -s` created"
        )
    })
}

/// The part of a repaired text that is the key. The decoder gets this part and nothing else, so that it reads what was looked at here.
struct Block<'a> {
    format: Format,
    text: &'a str,
    /// What its base64 stands for; empty in formats that are not PEM.
    body: Zeroizing<Vec<u8>>,
    /// Whether it is one block of base64 that can be read in one way only.
    is_sound: bool,
}

impl<'a> Block<'a> {
    fn of(text: &'a str) -> Self {
        let found =
            Format::LABELS.into_iter().filter_map(|(label, format)| Some((text.find(label)?, format)));
        let Some((start, format)) = found.min_by_key(|(start, _)| *start) else {
            return Self {
                format: Format::without_label(text),
                text,
                body: Zeroizing::default(),
                is_sound: true,
            };
        };
        let text = text.get(start..).unwrap_or_default();
        let end = text.find("\n-----END ").unwrap_or(text.len());
        let inside = text.get(..end).unwrap_or_default();
        let mut base64 = Zeroizing::new(String::with_capacity(inside.len()));
        for line in inside.lines().skip(1).filter(|line| looks_like_base64(line)) {
            base64.push_str(line);
        }
        let body = STANDARD.decode(base64.as_bytes()).map(Zeroizing::new);
        let is_sound = body.is_ok() && inside.matches("-----BEGIN ").count() == 1;
        Self { format, text: inside, body: body.unwrap_or_default(), is_sound }
    }

    fn is_encrypted(&self) -> bool {
        match self.format {
            // Reading a key makes its public half from it, which costs as much as a signature: the decoder does so anyway.
            Format::OpenSsh if self.body.starts_with(OPENSSH_NOT_ENCRYPTED) => false,
            Format::OpenSsh => {
                ssh_key::PrivateKey::from_bytes(&self.body).is_ok_and(|key| key.is_encrypted())
            }
            Format::Pkcs1 | Format::Sec1 => {
                self.text.contains("Proc-Type:") && self.text.contains("ENCRYPTED")
            }
            Format::Pkcs8Encrypted => true,
            Format::Putty => self
                .text
                .lines()
                .any(|line| line.strip_prefix("Encryption:").is_some_and(|cipher| cipher.trim() != "none")),
            _ => false,
        }
    }
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
    /// How the formats begin that say so.
    const LABELS: [(&str, Self); 5] = [
        ("-----BEGIN OPENSSH PRIVATE KEY-----", Self::OpenSsh),
        ("-----BEGIN RSA PRIVATE KEY-----", Self::Pkcs1),
        ("-----BEGIN EC PRIVATE KEY-----", Self::Sec1),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----", Self::Pkcs8Encrypted),
        ("-----BEGIN PRIVATE KEY-----", Self::Pkcs8),
    ];

    fn without_label(text: &str) -> Self {
        if text.starts_with("PuTTY-User-Key-File-") {
            Self::Putty
        } else if text.contains("-----BEGIN PUBLIC KEY-----")
            || text.starts_with("ssh-")
            || text.starts_with("ecdsa-")
        {
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
            Self::PublicKey => Some("the private key is required; use the file without .pub"),
            Self::Path => {
                Some("it looks like a file path; set private_key_path, or read the file with file()")
            }
            Self::Other => Some("its format is not supported; the text must begin with -----BEGIN …-----"),
            _ => None,
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
