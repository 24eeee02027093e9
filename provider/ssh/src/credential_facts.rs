//! Facts about credentials that errors contain.

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

/// A user certificate that the server did not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedCertificate {
    pub id: String,
    /// The fingerprint of the authority that signed it.
    pub authority: String,
    /// Possible causes that the certificate shows, as clauses: "expired at …".
    pub problems: Vec<String>,
}
