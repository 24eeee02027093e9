//! Why a private key cannot be used.

/// Why a private key cannot be used. Contains no part of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("{path} cannot be read: {problem}")]
    Unreadable { path: String, problem: String },
    #[error("the key of {source_name} is encrypted, and no passphrase is configured")]
    NoPassphrase { source_name: String },
    #[error("the passphrase for the key of {source_name} is wrong")]
    WrongPassphrase { source_name: String, program: KeyProgram },
    /// The key derivation takes more time or memory than the provider allows.
    #[error("the KDF cost of the key of {source_name} ({asked}) exceeds the limit ({limit})")]
    TooCostly { source_name: String, asked: String, limit: String, program: KeyProgram },
    #[error("the certificate {source_name} cannot be used: {problem}")]
    Certificate { source_name: String, problem: String },
    #[error("the key of {source_name} ({format}) cannot be used: {problem}")]
    Unusable { source_name: String, format: String, problem: String, program: KeyProgram },
}

/// The program that reads a private key of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyProgram {
    SshKeygen,
    Puttygen,
}

impl KeyProgram {
    /// The command that reads `KEY`.
    pub const fn read(self) -> &'static str {
        match self {
            Self::SshKeygen => "ssh-keygen -y -f KEY",
            Self::Puttygen => "puttygen KEY -O private-openssh -o NEW",
        }
    }

    /// The command that writes `KEY` in the OpenSSH format.
    pub const fn convert(self) -> &'static str {
        match self {
            Self::SshKeygen => "ssh-keygen -p -f KEY",
            Self::Puttygen => self.read(),
        }
    }

    /// The command that encrypts `KEY` again with a lower KDF cost.
    pub const fn encrypt(self) -> &'static str {
        match self {
            Self::SshKeygen => "ssh-keygen -p -a 100 -f KEY",
            Self::Puttygen => "puttygen KEY --reencrypt --ppk-param memory=8192,passes=34 -o NEW",
        }
    }
}
