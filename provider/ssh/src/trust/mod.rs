//! The host key check: known_hosts files and text, pinned keys, fingerprints, and authorities.
//!
//! The rules are those of OpenSSH (`man sshd`, "SSH_KNOWN_HOSTS FILE FORMAT"). russh's check accepts revoked keys, has no patterns and no
//! authorities, and treats a second key of a type as changed.

mod key;
mod known_hosts;
mod pattern;
pub(crate) mod refusal;
pub(crate) mod sources;

pub(crate) use key::{HostKey, fingerprint_in};
pub(crate) use known_hosts::lookup_name;
pub(crate) use pattern::matches_any;

use std::path::Path;

use crate::{
    address::{HostPort, SSH_PORT},
    attribute::{Attribute, InvalidOption},
    trust::refusal::{ExpectedKey, HostKeyRefusal, HostKeyVerdict, KeyOrigin},
    user_files,
};
use key::Pin;
use known_hosts::Marker;
use sources::TrustSources;

/// About 100 lines, which are parsed in 0.1 ms.
const SHORT_KNOWN_HOSTS: usize = 16 << 10;

/// The required host keys of a runner manager or jump host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pinned {
    pub(crate) attribute: Attribute,
    /// Public keys and fingerprints, one per line.
    pub(crate) keys: String,
}

/// The trusted keys of one host.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostTrust {
    name: String,
    accept_any: bool,
    /// The keys of this host.
    known: Vec<KnownKey>,
    /// Keys that are accepted from any host: another key does not mean that the key of this host has changed.
    any_host: Vec<KnownKey>,
    /// Keys for the same host name on the standard port. They can only accept a key, as in OpenSSH.
    fallback: Vec<HostKey>,
    authorities: Vec<KnownKey>,
    revoked: Vec<KnownKey>,
    searched: Vec<String>,
    /// Key types that are not requested again.
    excluded: Vec<String>,
}

#[derive(Debug, Clone)]
struct KnownKey {
    pin: Pin,
    source: KeyOrigin,
}

impl HostTrust {
    /// Collects the keys of all sources. Files are read each time, so that a line that is added during a long wait has an effect. An
    /// unreadable file is not an error here: it is reported if a key is rejected.
    pub(crate) fn gather(
        sources: &TrustSources,
        pinned: Option<&Pinned>,
        host: &HostPort,
    ) -> Result<Self, InvalidOption> {
        let mut trust = Self {
            name: lookup_name(host.host(), host.port()),
            accept_any: sources.insecure_ignore_host_key,
            ..Self::default()
        };
        if let Some(Pinned { attribute, keys }) = pinned {
            trust.known = trust.pins(attribute, keys)?;
            // A pinned key replaces the other sources, except for revoked keys.
            trust.accept_any = false;
            trust.revoked = Self::gather(sources, None, host)?.revoked;
            return Ok(trust);
        }
        for (index, text) in sources.host_keys.iter().enumerate() {
            let pins = trust.pins(&Attribute::SshElement("host_keys", index), text)?;
            trust.any_host.extend(pins);
        }
        for (index, text) in sources.host_ca.iter().enumerate() {
            let attribute = Attribute::SshElement("host_ca", index);
            let key = authority(text).map_err(|problem| InvalidOption::new(attribute.clone(), problem))?;
            trust.authorities.push(KnownKey { pin: Pin::Key(key), source: KeyOrigin::Attribute(attribute) });
        }
        if let Some(text) = &sources.known_hosts {
            let of = if sources.known_hosts_variable { Attribute::Variable } else { Attribute::Ssh };
            let attribute = of("known_hosts");
            let invalid = |problem| InvalidOption::new(attribute.clone(), problem);
            trust.lines(&attribute.to_string(), text.as_bytes(), host).map_err(invalid)?;
        }
        for path in &sources.known_hosts_files {
            let invalid = |problem: String| {
                let problem = format!("{}, {problem}", user_files::shown(path));
                InvalidOption::new(Attribute::Ssh("known_hosts_path"), problem)
            };
            trust.file(path, host).map_err(invalid)?;
        }
        Ok(trust)
    }

    /// Whether [`Self::gather`] is fast: it reads no file, and little text.
    pub(crate) fn needs_no_file(sources: &TrustSources) -> bool {
        sources.known_hosts_files.is_empty()
            && sources.known_hosts.as_ref().is_none_or(|text| text.len() <= SHORT_KNOWN_HOSTS)
    }

    /// The keys of a known_hosts text.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn of_text(text: &[u8], host: &HostPort) -> Result<Self, String> {
        let mut trust = Self { name: lookup_name(host.host(), host.port()), ..Self::default() };
        trust.lines("known_hosts", text, host)?;
        Ok(trust)
    }

    /// Checks a plain host key.
    pub(crate) fn verify(&self, key: &HostKey) -> Result<(), Box<HostKeyRefusal>> {
        if self.accept_any {
            return Ok(());
        }
        self.refuse_revoked(HostKeyVerdict::Revoked, key, key)?;
        if self.accepted().any(|it| it.pin.fits(key)) {
            return Ok(());
        }
        if self.known.is_empty() && self.fallback.contains(key) {
            return Ok(());
        }
        let verdict = if self.known.is_empty() { HostKeyVerdict::Unknown } else { HostKeyVerdict::Changed };
        Err(self.refusal(verdict, key))
    }

    pub(crate) fn accepts_any(&self) -> bool {
        self.accept_any
    }

    /// Whether a certificate signed by this key is accepted for the host. The caller checks the certificate.
    pub(crate) fn is_authority(&self, key: &HostKey) -> bool {
        self.authorities.iter().any(|it| it.pin.fits(key))
    }

    /// Refuses the host if `checked`, its key or the key of its authority, is revoked. Not if any key is accepted.
    pub(crate) fn refuse_revoked(
        &self,
        verdict: HostKeyVerdict,
        checked: &HostKey,
        key: &HostKey,
    ) -> Result<(), Box<HostKeyRefusal>> {
        let Some(revoked) = self.revoked.iter().find(|it| !self.accept_any && it.pin.fits(checked)) else {
            return Ok(());
        };
        let mut refusal = self.refusal(verdict, key);
        refusal.expected = vec![revoked.expected()];
        Err(refusal)
    }

    /// Whether host certificates can be accepted.
    pub(crate) fn has_authorities(&self) -> bool {
        !self.accept_any && !self.authorities.is_empty()
    }

    fn accepted(&self) -> impl Iterator<Item = &KnownKey> {
        self.known.iter().chain(&self.any_host)
    }

    /// The types of the known keys, which are requested first.
    pub(crate) fn key_types(&self) -> impl Iterator<Item = &str> {
        let known = self.accepted().filter_map(|it| it.pin.key_type());
        known.chain(self.fallback.iter().map(|key| key.key_type.as_str()))
    }

    /// Key types that the host has used without success.
    pub(crate) fn excluded(&self) -> &[String] {
        &self.excluded
    }

    /// Excludes the rejected key type if another type may be accepted: a pinned fingerprint does not contain the key type. Returns whether
    /// a retry is useful.
    pub(crate) fn exclude(&mut self, refusal: &HostKeyRefusal) -> bool {
        let untyped = self.accepted().any(|known| known.pin.key_type().is_none());
        let first_time = !self.excluded.contains(&refusal.key_type);
        let is_other_key = matches!(refusal.verdict, HostKeyVerdict::Unknown | HostKeyVerdict::Changed);
        let retry_helps = is_other_key && untyped && first_time;
        if retry_helps {
            self.excluded.push(refusal.key_type.clone());
        }
        retry_helps
    }

    pub(crate) fn refusal(&self, verdict: HostKeyVerdict, key: &HostKey) -> Box<HostKeyRefusal> {
        let expected =
            if verdict == HostKeyVerdict::BadCertificate { &self.authorities } else { &self.known };
        Box::new(HostKeyRefusal {
            verdict,
            key_type: key.key_type.clone(),
            fingerprint: key.fingerprint(),
            expected: expected.iter().map(KnownKey::expected).collect(),
            line: format!("{} {key}", self.name),
            searched: self.searched.clone(),
            problem: None,
        })
    }

    fn pins(&mut self, attribute: &Attribute, text: &str) -> Result<Vec<KnownKey>, InvalidOption> {
        let pins = pins(text).map_err(|problem| InvalidOption::new(attribute.clone(), problem))?;
        let known = |pin| KnownKey { pin, source: KeyOrigin::Attribute(attribute.clone()) };
        self.searched.push(format!("{attribute} (host keys: {})", pins.len()));
        Ok(pins.into_iter().map(known).collect())
    }

    fn file(&mut self, path: &Path, host: &HostPort) -> Result<(), String> {
        let name = user_files::shown(path);
        match user_files::read(path) {
            Ok(text) => self.lines(&name, &text, host)?,
            Err(problem) => self.searched.push(format!("{name} ({problem})")),
        }
        Ok(())
    }

    fn lines(&mut self, source: &str, text: &[u8], host: &HostPort) -> Result<(), String> {
        self.searched.push(format!("{source} ({})", contents(text)?));
        let standard = lookup_name(host.host(), SSH_PORT);
        for line in known_hosts::parse(text) {
            let (number, line) = line?;
            // As in OpenSSH, a key that is revoked for the plain name is also revoked for the name with a port.
            let fits = line.hosts.match_name(&self.name)
                || (line.marker == Marker::Revoked && line.hosts.match_name(&standard));
            if !fits && line.marker == Marker::None && line.hosts.match_name(&standard) {
                self.fallback.push(line.key);
                continue;
            }
            let list = match line.marker {
                Marker::None => &mut self.known,
                Marker::CertAuthority => &mut self.authorities,
                Marker::Revoked => &mut self.revoked,
            };
            if fits {
                list.push(KnownKey {
                    pin: Pin::Key(line.key),
                    source: KeyOrigin::Line(format!("{source}:{number}")),
                });
            }
        }
        Ok(())
    }
}

/// A line that is not empty and not a comment.
fn significant(line: &str) -> Option<&str> {
    Some(line.trim()).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The pinned keys of an attribute, at least one: without a key, any key of another source would be accepted.
fn pins(text: &str) -> Result<Vec<Pin>, String> {
    let lines = user_files::without_mark(text).lines();
    let pins: Vec<Pin> = lines.filter_map(significant).map(str::parse).collect::<Result<_, _>>()?;
    if pins.is_empty() {
        return Err("it contains no host key; set a key, or null".to_owned());
    }
    Ok(pins)
}

pub fn check_pins(text: &str) -> Result<(), String> {
    pins(text).map(drop)
}

pub fn check_known_hosts(text: &[u8]) -> Result<(), String> {
    match count_known_hosts(text)? {
        0 => Err(format!(
            "no known_hosts entry found ({}); `ssh-keyscan HOST` prints entries",
            contents(text)?
        )),
        _ => Ok(()),
    }
}

const PATH: &str = "it looks like a file path; set known_hosts_path (GRIT_SSH_KNOWN_HOSTS_PATH), or read the file with file()";

const LITERAL_NEWLINE: &str = "it contains `\\n` as two characters; separate the lines by line breaks";

/// What a known_hosts text contains.
fn contents(text: &[u8]) -> Result<String, String> {
    let keys = count_known_hosts(text)?;
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().filter_map(significant).count();
    let hint = if keys == 0 && user_files::looks_like_path(&text) {
        format!("; {PATH}")
    } else if text.contains("\\n") {
        format!("; {LITERAL_NEWLINE}")
    } else {
        String::new()
    };
    Ok(format!("lines: {lines}, host keys: {keys}{hint}"))
}

/// The number of entries. The error names a line that may revoke a key and is not valid.
fn count_known_hosts(text: &[u8]) -> Result<usize, String> {
    known_hosts::parse(text).try_fold(0, |count, line| line.map(|_| count + 1))
}

pub(crate) fn authority(text: &str) -> Result<HostKey, String> {
    HostKey::parse(user_files::without_mark(text)).ok_or_else(|| {
        "not a public key; use the format of a .pub file, such as \"ssh-ed25519 AAAA…\"".to_owned()
    })
}

impl KnownKey {
    fn expected(&self) -> ExpectedKey {
        ExpectedKey {
            key_type: self.pin.key_type().unwrap_or("key").to_owned(),
            fingerprint: self.pin.fingerprint(),
            source: self.source.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
