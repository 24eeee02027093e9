//! Private keys: de-indented, classified by the table of kinds, and decoded.

pub(crate) mod error;
mod kinds;
pub(crate) mod store;

use zeroize::Zeroizing;

use crate::{
    secret::Secret,
    session::{CertifiedKey, DecodeError, PrivateKey},
    user_files,
};
use error::KeyError;
use kinds::Kind;

/// Parses and decrypts a private key. Blocks: the key derivation of an encrypted key takes 0.1 s or more.
///
/// `source` is the name of the text in errors. A passphrase is ignored if the key is not encrypted.
pub(crate) fn load(text: &Secret, passphrase: Option<&Secret>, source: &str) -> Result<PrivateKey, KeyError> {
    let text = without_indentation(text.expose());
    let kind = Kind::of(&text);
    let source_name = source.to_owned();
    let unusable = |problem: String| KeyError::Unusable {
        source_name: source.to_owned(),
        format: kind.name,
        problem,
        check: kind.check,
    };
    if let Some(problem) = kind.problem {
        return Err(unusable(problem.to_owned()));
    }
    // The decoder reads some formats only without a passphrase, if the key is not encrypted.
    let mut decoded = PrivateKey::decode(&text, None);
    let is_encrypted = match &decoded {
        Ok(_) => false,
        Err(error) => *error == DecodeError::Encrypted || kinds::is_encrypted(&text),
    };
    if is_encrypted {
        let Some(passphrase) = passphrase else { return Err(KeyError::NoPassphrase { source_name }) };
        decoded = PrivateKey::decode(&text, Some(passphrase.expose()));
    }
    decoded.map_err(|error| match error {
        DecodeError::Passphrase => KeyError::WrongPassphrase { source_name, check: kind.check },
        DecodeError::Algorithm(name) => unusable(format!(
            "keys of the kind {name} are not supported; use an Ed25519, ECDSA (P-256, P-384, P-521) or RSA key, or a key in an agent"
        )),
        // The decoder's error could contain a part of the key.
        DecodeError::Encrypted | DecodeError::Other if is_encrypted => unusable(format!(
            "its encryption is not supported, or the passphrase is wrong; `{}` converts the key to the OpenSSH format",
            kind.convert
        )),
        DecodeError::Encrypted | DecodeError::Other if !text.contains('\n') => {
            unusable("its line breaks are missing".to_owned())
        }
        DecodeError::Encrypted | DecodeError::Other => {
            unusable("the key text is damaged or incomplete".to_owned())
        }
    })
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
    CertifiedKey::parse(text, key)
        .map_err(|problem| KeyError::Certificate { source_name: source.to_owned(), problem })
}

/// The lines without the indentation of a heredoc, and without blank lines, carriage returns and a byte order mark.
fn without_indentation(text: &str) -> Zeroizing<String> {
    let mut lines = Zeroizing::new(String::with_capacity(text.len()));
    for line in user_files::without_mark(text).lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !lines.is_empty() {
            lines.push('\n');
        }
        lines.push_str(line);
    }
    lines
}

#[cfg(test)]
mod tests;
