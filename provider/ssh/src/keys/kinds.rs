//! The formats of private keys, and the texts that users set instead of one.

use crate::user_files::looks_like_path;

/// A kind of text, and its cure.
#[derive(Debug)]
pub(super) struct Kind {
    /// Texts of this kind contain one of these at the beginning of a line.
    starts: &'static [&'static str],
    /// For errors.
    pub(super) name: &'static str,
    /// Why it is not a private key, and what to do.
    pub(super) problem: Option<&'static str>,
    /// The command that shows whether `KEY` can be read.
    pub(super) check: &'static str,
    /// The command that writes `KEY` in the OpenSSH format.
    pub(super) convert: &'static str,
}

const KEY: Kind = Kind {
    starts: &[],
    name: "",
    problem: None,
    check: "ssh-keygen -y -f KEY",
    convert: "ssh-keygen -p -f KEY",
};

/// The first kind that fits counts.
static KINDS: [Kind; 10] = [
    Kind { starts: &["-----BEGIN OPENSSH PRIVATE KEY-----"], name: "OpenSSH", ..KEY },
    Kind { starts: &["-----BEGIN RSA PRIVATE KEY-----"], name: "RSA PEM, PKCS#1", ..KEY },
    Kind { starts: &["-----BEGIN EC PRIVATE KEY-----"], name: "EC PEM, SEC1", ..KEY },
    Kind { starts: &["-----BEGIN ENCRYPTED PRIVATE KEY-----"], name: "encrypted PEM, PKCS#8", ..KEY },
    Kind { starts: &["-----BEGIN PRIVATE KEY-----"], name: "PEM, PKCS#8", ..KEY },
    Kind {
        starts: &["PuTTY-User-Key-File-"],
        name: "PuTTY",
        // ssh-keygen cannot read it.
        check: "puttygen KEY -O private-openssh -o NEW",
        convert: "puttygen KEY -O private-openssh -o NEW",
        ..KEY
    },
    Kind {
        starts: &["-----BEGIN PUBLIC KEY-----", "ssh-", "ecdsa-", "sk-"],
        name: "a public key",
        problem: Some("the private key is required; use the file without .pub"),
        ..KEY
    },
    Kind {
        starts: &["-----BEGIN EC PARAMETERS-----"],
        name: "EC parameters",
        problem: Some(
            "it has only the parameters of the curve; the part -----BEGIN EC PRIVATE KEY----- is missing",
        ),
        ..KEY
    },
    // `-----BEGIN ` and `PuTTY-User-Key-File-` in base64.
    Kind {
        starts: &["LS0tLS1CRUdJTi", "UHVUVFktVXNlci1LZXktRmlsZS"],
        name: "base64",
        problem: Some("it is a key file in base64; decode it, for example with base64decode()"),
        ..KEY
    },
    // `openssh-key-v1` in base64, and the beginnings of PKCS#8, PKCS#1 and SEC1.
    Kind {
        starts: &["b3BlbnNzaC1rZXktdjE", "MC4CAQ", "MHcCAQ", "MII", "MIG"],
        name: "incomplete PEM",
        problem: Some("its first line is missing: -----BEGIN …-----"),
        ..KEY
    },
];

static PATH: Kind = Kind {
    name: "a path",
    problem: Some(
        "it looks like a file path; set private_key_path (GRIT_SSH_PRIVATE_KEY_PATH), or read the file with file()",
    ),
    ..KEY
};
static EMPTY: Kind = Kind { name: "no text", problem: Some("it is empty"), ..KEY };
static OTHER: Kind = Kind {
    name: "unknown format",
    problem: Some("expected a text that begins with -----BEGIN …-----, or a PuTTY key"),
    ..KEY
};

impl Kind {
    /// Of a text without indentation.
    pub(super) fn of(text: &str) -> &'static Self {
        let begins = |kind: &&Kind| {
            // Other lines may precede the label of a key.
            let lines = text.lines().take(if kind.problem.is_none() { usize::MAX } else { 1 });
            lines.into_iter().any(|line| kind.starts.iter().any(|start| line.starts_with(start)))
        };
        KINDS.iter().find(begins).unwrap_or(match text {
            "" => &EMPTY,
            path if looks_like_path(path) => &PATH,
            _ => &OTHER,
        })
    }
}

/// Whether a key in PEM or PuTTY's format is encrypted. A key in the OpenSSH format does not show it in its text.
pub(super) fn is_encrypted(text: &str) -> bool {
    text.lines().any(|line| match line.split_once(':') {
        Some(("Encryption", cipher)) => cipher.trim() != "none",
        Some(("Proc-Type", value)) => value.contains("ENCRYPTED"),
        _ => line.starts_with("-----BEGIN ENCRYPTED "),
    })
}
