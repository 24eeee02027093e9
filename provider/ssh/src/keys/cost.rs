//! Limits for the key derivation of encrypted keys, checked before it runs.
//!
//! Without limits, a key file determines the time (2^32 rounds of bcrypt take a year) and the memory (scrypt and Argon2: terabytes). Each
//! limit is a few seconds on a small machine, and far above what tools write.

use pkcs8::{
    EncryptedPrivateKeyInfoRef,
    pkcs5::{EncryptionScheme, pbes2::Kdf},
};
use russh::keys::ssh_key;

use super::block::{Block, Format};

#[derive(Debug, Clone, Copy)]
pub(crate) struct KdfLimits {
    bcrypt_rounds: u32,
    pbkdf2_iterations: u32,
    /// N x r x p.
    scrypt_blocks: u64,
    /// Memory in MiB times passes.
    argon2_work: u64,
    /// Memory in MiB of scrypt and Argon2.
    mib: u64,
}

impl KdfLimits {
    /// The provider's limits. Each comment has the time of one unit, and the usual values of tools.
    pub(crate) const USUAL: Self = Self {
        bcrypt_rounds: 2_000,          // 9 ms; ssh-keygen 16 or 24, `-a 100` is what people choose
        pbkdf2_iterations: 10_000_000, // 1 µs; OpenSSL 2048, and 600 000 is what is advised for passwords
        scrypt_blocks: 1 << 24,        // 0.5 µs; OpenSSL 2^17
        argon2_work: 16 << 10,         // 1 ms; puttygen 8 MiB and a dozen passes
        mib: 256,
    };

    /// For test keys with a cheap derivation.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) const TINY: Self =
        Self { bcrypt_rounds: 2, pbkdf2_iterations: 2_000, scrypt_blocks: 256, argon2_work: 1, mib: 1 };
}

/// The key derivation of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Derivation {
    Bcrypt { rounds: u32 },
    Pbkdf2 { iterations: u32 },
    Scrypt { n: u64, r: u64, p: u64 },
    Argon2 { kib: u64, passes: u64 },
}

/// Why a key derivation is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KdfProblem {
    /// The parameters are invalid.
    Damaged,
    /// The cost of the key, and the limit.
    TooCostly { asked: String, limit: String },
}

/// Checks an encrypted key. A key without derivation parameters (PKCS#1 has a fixed derivation) is always accepted.
pub(super) fn check(block: &Block<'_>, limits: &KdfLimits) -> Result<(), KdfProblem> {
    Derivation::of(block).map_or(Ok(()), |derivation| derivation.check(limits))
}

impl Derivation {
    fn of(block: &Block<'_>) -> Option<Self> {
        match block.format {
            Format::OpenSsh => match ssh_key::PrivateKey::from_bytes(&block.body).ok()?.kdf() {
                ssh_key::Kdf::Bcrypt { rounds, .. } => Some(Self::Bcrypt { rounds: *rounds }),
                _ => None,
            },
            Format::Putty => {
                // If a name is repeated, its largest value counts.
                let largest = |name| {
                    let lines = block.text.lines().filter_map(|line| line.split_once(": "));
                    lines.filter(|(it, _)| *it == name).filter_map(|(_, value)| value.parse().ok()).max()
                };
                Some(Self::Argon2 { kib: largest("Argon2-Memory")?, passes: largest("Argon2-Passes")? })
            }
            // The decoder ignores the label.
            _ => match EncryptedPrivateKeyInfoRef::try_from(block.body.as_slice()).ok()?.encryption_algorithm
            {
                EncryptionScheme::Pbes2(pbes2) => match pbes2.kdf {
                    Kdf::Pbkdf2(kdf) => Some(Self::Pbkdf2 { iterations: kdf.iteration_count }),
                    Kdf::Scrypt(kdf) => Some(Self::Scrypt {
                        n: kdf.cost_parameter,
                        r: kdf.block_size.into(),
                        p: kdf.parallelization.into(),
                    }),
                    _ => None,
                },
                _ => None,
            },
        }
    }

    fn check(self, limits: &KdfLimits) -> Result<(), KdfProblem> {
        let KdfLimits { bcrypt_rounds, pbkdf2_iterations, scrypt_blocks, argon2_work, mib: most } = *limits;
        let too_costly = |asked, limit| Err(KdfProblem::TooCostly { asked, limit });
        match self {
            Self::Bcrypt { rounds } if rounds > bcrypt_rounds => {
                too_costly(format!("{rounds} bcrypt rounds"), bcrypt_rounds.to_string())
            }
            Self::Pbkdf2 { iterations } if iterations > pbkdf2_iterations => {
                too_costly(format!("{iterations} PBKDF2 iterations"), pbkdf2_iterations.to_string())
            }
            // The decoder computes the logarithm of N.
            Self::Scrypt { n: 0, .. } => Err(KdfProblem::Damaged),
            Self::Scrypt { n, r, p } => {
                let asked = |what| format!("scrypt with N={n}, r={r}, p={p}, {what}");
                let [n, r, p] = [n, r, p].map(u128::from);
                let (mib, blocks) = (r.saturating_mul(n + p) >> 13, n.saturating_mul(r * p));
                if mib > u128::from(most) {
                    too_costly(asked(format!("{mib} MiB of memory")), format!("{most} MiB of memory"))
                } else if blocks > u128::from(scrypt_blocks) {
                    too_costly(asked(format!("N x r x p = {blocks}")), scrypt_blocks.to_string())
                } else {
                    Ok(())
                }
            }
            Self::Argon2 { kib, passes } => {
                let (mib, work) = (kib >> 10, (kib >> 10).saturating_mul(passes));
                if mib > most {
                    too_costly(format!("Argon2 with {mib} MiB of memory"), format!("{most} MiB of memory"))
                } else if work > argon2_work {
                    too_costly(
                        format!("Argon2 with {passes} passes over {mib} MiB"),
                        format!("{argon2_work} MiB over all passes"),
                    )
                } else {
                    Ok(())
                }
            }
            Self::Bcrypt { .. } | Self::Pbkdf2 { .. } => Ok(()),
        }
    }
}
