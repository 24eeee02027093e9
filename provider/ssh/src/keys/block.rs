//! The formats of private keys, and the part of a text that is the key.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use russh::keys::{self, ssh_key};
use zeroize::Zeroizing;

use crate::user_files::looks_like_path;

/// The beginning of an unencrypted key in the OpenSSH format: magic, length and name of the cipher.
const OPENSSH_NOT_ENCRYPTED: &[u8] = b"openssh-key-v1\0\0\0\0\x04none";

/// The part of a repaired text that is the key. The decoder receives exactly the part that was checked here.
pub(super) struct Block<'a> {
    pub(super) format: Format,
    pub(super) text: &'a str,
    /// The decoded base64; empty in formats that are not PEM.
    pub(super) body: Zeroizing<Vec<u8>>,
    /// Whether it is one valid block of base64.
    pub(super) is_sound: bool,
}

impl<'a> Block<'a> {
    pub(super) fn of(text: &'a str) -> Self {
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

    pub(super) fn is_encrypted(&self) -> bool {
        match self.format {
            // Parsing an unencrypted key computes its public key, which is slow; the decoder does it again.
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

/// Formats of private keys, and texts that users mistake for a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenSsh,
    Pkcs1,
    Sec1,
    Pkcs8,
    Pkcs8Encrypted,
    Putty,
    PublicKey,
    Path,
    Empty,
    Base64,
    WithoutLabel,
    Other,
}

impl Format {
    /// The PEM labels of the formats.
    const LABELS: [(&str, Self); 5] = [
        ("-----BEGIN OPENSSH PRIVATE KEY-----", Self::OpenSsh),
        ("-----BEGIN RSA PRIVATE KEY-----", Self::Pkcs1),
        ("-----BEGIN EC PRIVATE KEY-----", Self::Sec1),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----", Self::Pkcs8Encrypted),
        ("-----BEGIN PRIVATE KEY-----", Self::Pkcs8),
    ];

    fn without_label(text: &str) -> Self {
        let begins_with = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if text.is_empty() {
            Self::Empty
        } else if begins_with(&["PuTTY-User-Key-File-"]) {
            Self::Putty
        } else if text.contains("-----BEGIN PUBLIC KEY-----") || begins_with(&["ssh-", "ecdsa-", "sk-"]) {
            Self::PublicKey
        } else if let Some(encoded) = Self::encoded(text) {
            encoded
        } else if looks_like_path(text) {
            Self::Path
        } else {
            Self::Other
        }
    }

    /// A text in base64 whose content is a key file, or a key.
    fn encoded(text: &str) -> Option<Self> {
        let base64 = Zeroizing::new(text.split_whitespace().collect::<String>());
        let content = Zeroizing::new(STANDARD.decode(base64.as_bytes()).ok()?);
        if content.starts_with(b"-----BEGIN ") || content.starts_with(b"PuTTY-User-Key-File-") {
            return Some(Self::Base64);
        }
        // A key in DER is a sequence.
        let is_der = content.len() > 40 && content.first() == Some(&0x30);
        (is_der || content.starts_with(b"openssh-key-v1")).then_some(Self::WithoutLabel)
    }

    /// Why a format is not supported.
    pub(super) fn refused(self) -> Option<&'static str> {
        match self {
            Self::PublicKey => Some("the private key is required; use the file without .pub"),
            Self::Path => Some(
                "it looks like a file path; set private_key_path (GRIT_SSH_PRIVATE_KEY_PATH), or read the file with file()",
            ),
            Self::Empty => Some("it is empty"),
            Self::Base64 => Some("it is a key file in base64; decode it, for example with base64decode()"),
            Self::WithoutLabel => Some("its first line is missing: -----BEGIN …-----"),
            Self::Other => Some(
                "its format is not supported; the text of a private key begins with -----BEGIN …-----, or is a PuTTY key",
            ),
            _ => None,
        }
    }

    /// Whether an error of the decoder means a wrong passphrase in this format.
    pub(super) fn fails_by_passphrase(self, error: &keys::Error) -> bool {
        let text = error.to_string();
        match self {
            // ssh-key's error for a wrong checksum or padding.
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
            Self::Empty => "no text",
            Self::Base64 => "base64",
            Self::WithoutLabel => "incomplete PEM",
            Self::Other => "unknown format",
        })
    }
}

pub(super) fn looks_like_base64(line: &str) -> bool {
    line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/= \t".contains(&byte))
}
