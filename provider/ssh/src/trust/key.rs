//! Host keys and pinned keys.

use std::{fmt, str::FromStr};

use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use sha2::{Digest, Sha256};

/// Fingerprints have no padding, but users often copy them with padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A public key: its type and its encoded bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HostKey {
    /// Such as `ssh-ed25519`. An RSA key is `ssh-rsa` for all signature algorithms.
    pub(crate) key_type: String,
    pub(crate) blob: Vec<u8>,
}

impl HostKey {
    /// Parses `TYPE BASE64 [COMMENT]`, the format of a `.pub` file.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Self::from_words(words.next()?, words.next()?)
    }

    /// Parses a type and a blob in base64, which must match.
    pub(crate) fn from_words(key_type: &str, base64: &str) -> Option<Self> {
        let blob = STANDARD.decode(base64).ok()?;
        let (length, rest) = blob.split_first_chunk::<4>()?;
        let inner = rest.get(..u32::from_be_bytes(*length) as usize)?;
        let whole = rest.len() > inner.len(); // a name alone is no key
        (inner == key_type.as_bytes() && whole).then(|| Self { key_type: key_type.to_owned(), blob })
    }

    /// As `SHA256:…`.
    pub(crate) fn fingerprint(&self) -> String {
        show(&self.digest())
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.blob).into()
    }
}

/// `TYPE BASE64`.
impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key_type, STANDARD.encode(&self.blob))
    }
}

/// A whole key, or its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pin {
    Key(HostKey),
    Sha256([u8; 32]),
}

impl Pin {
    pub(super) fn fits(&self, key: &HostKey) -> bool {
        match self {
            Self::Key(known) => known == key,
            Self::Sha256(digest) => *digest == key.digest(),
        }
    }

    pub(super) fn key_type(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(&key.key_type),
            Self::Sha256(_) => None,
        }
    }

    pub(super) fn fingerprint(&self) -> String {
        match self {
            Self::Key(key) => key.fingerprint(),
            Self::Sha256(digest) => show(digest),
        }
    }
}

/// Parses `SHA256:…`, `TYPE BASE64 [COMMENT]`, `HOST TYPE BASE64`, the output of `ssh-keyscan`, and `BITS SHA256:… COMMENT (TYPE)`, the output of
/// `ssh-keygen -lf`.
impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let after_host = text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
        if let Some(key) = HostKey::parse(text).or_else(|| HostKey::parse(after_host)) {
            return Ok(Self::Key(key));
        }
        if let Some(digest) = fingerprint_in(text) {
            let digest = sha256(digest);
            return digest.map(Self::Sha256).ok_or_else(|| {
                format!("{text:?} is not a valid fingerprint; `ssh-keygen -lf KEY.pub` prints the fingerprint (`SHA256:` and 43 characters)")
            });
        }
        if let Some(digest) = Some(text).filter(|text| text.len() >= SHA256_CHARS).and_then(sha256) {
            return Ok(Self::Sha256(digest));
        }
        Err(NOT_A_PIN
            .iter()
            .find(|(mark, _)| text.contains(mark))
            .map_or(EXPECTED, |(_, problem)| problem)
            .to_owned())
    }
}

const EXPECTED: &str = "expected a public key (\"ssh-ed25519 AAAA…\") or a fingerprint (\"SHA256:…\"); read a .pub file with file()";

/// What users set instead of a key, and the reason why it cannot be used.
const NOT_A_PIN: [(&str, &str); 3] = [
    ("@cert-authority", "an authority is not a host key: set its public key in `ssh.host_ca`"),
    (
        "MD5:",
        "MD5 fingerprints are not supported: `ssh-keygen -lf KEY.pub` prints the fingerprint to use (\"SHA256:…\")",
    ),
    ("SSHFP", "SSHFP records are not supported: set the public key, or its fingerprint (\"SHA256:…\")"),
];

/// The characters of a SHA-256 digest in base64 without padding.
const SHA256_CHARS: usize = 43;

/// The characters after `SHA256:` in a fingerprint, or in a line of `ssh-keygen -lf`.
pub(crate) fn fingerprint_in(text: &str) -> Option<&str> {
    const PREFIX: &str = "SHA256:";
    text.split_whitespace().find_map(|word| {
        let (prefix, digest) = word.split_at_checked(PREFIX.len())?;
        prefix.eq_ignore_ascii_case(PREFIX).then_some(digest)
    })
}

fn sha256(digest: &str) -> Option<[u8; 32]> {
    LENIENT.decode(digest.trim()).ok().and_then(|bytes| bytes.try_into().ok())
}

fn show(digest: &[u8; 32]) -> String {
    format!("SHA256:{}", LENIENT.encode(digest))
}
