//! The format of known_hosts files. Invalid lines are ignored, except those that may revoke a key.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::{key::HostKey, pattern};
use crate::user_files;

/// The name of a host in known_hosts: `[host]:port`, or the plain host on the standard port.
pub(crate) fn lookup_name(host: &str, port: u16) -> String {
    let host = host.to_lowercase();
    if port == crate::address::SSH_PORT { host } else { format!("[{host}]:{port}") }
}

/// A line: a key for some hosts.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) marker: Marker,
    pub(super) hosts: Hosts,
    pub(super) key: HostKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    None,
    CertAuthority,
    Revoked,
}

/// The hosts of a line.
#[derive(Debug)]
pub(super) enum Hosts {
    Patterns(String),
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

impl Hosts {
    /// Whether the line is for this host, given as a [`lookup_name`].
    pub(super) fn match_name(&self, name: &str) -> bool {
        match self {
            Self::Patterns(list) => pattern::list_matches(list, name),
            Self::Hashed { salt, hash } => Hmac::<Sha1>::new_from_slice(salt)
                .is_ok_and(|mac| mac.chain_update(name.as_bytes()).verify_slice(hash).is_ok()),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let Some(hashed) = text.strip_prefix('|') else { return Some(Self::Patterns(text.to_owned())) };
        let (salt, hash) = hashed.strip_prefix("1|")?.split_once('|')?;
        Some(Self::Hashed { salt: STANDARD.decode(salt).ok()?, hash: STANDARD.decode(hash).ok()? })
    }
}

/// The valid lines with their line numbers. An error contains the number of its line.
pub(super) fn parse(text: &[u8]) -> impl Iterator<Item = Result<(usize, Line), String>> {
    let text = text.strip_prefix(user_files::MARK.as_bytes()).unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    lines.filter_map(|(line, number)| {
        // A comment may have another encoding.
        match parse_line(&String::from_utf8_lossy(line)) {
            Ok(line) => Some(Ok((number, line?))),
            Err(problem) => Some(Err(format!("line {number}: {problem}"))),
        }
    })
}

/// OpenSSH ignores a line whose marker is unknown, such as `@REVOKED`, and a `@revoked` line without a valid key: the key stays trusted.
fn parse_line(line: &str) -> Result<Option<Line>, String> {
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(None) };
    let (marker, hosts) = match first {
        "@cert-authority" => (Marker::CertAuthority, words.next()),
        "@revoked" => (Marker::Revoked, words.next()),
        hosts => (Marker::None, Some(hosts)),
    };
    if let Some(unknown) = hosts.filter(|word| word.starts_with('@')) {
        return Err(format!(
            "the marker {unknown:?} is not valid: a line can begin with one marker, \"@revoked\" or \"@cert-authority\", in lower case"
        ));
    }
    let key = words.next().zip(words.next()).and_then(|(name, blob)| HostKey::from_words(name, blob));
    let hosts = hosts.and_then(Hosts::parse);
    match hosts.zip(key) {
        None if marker == Marker::Revoked => {
            Err("\"@revoked\" must be followed by host names, a key type and a key".to_owned())
        }
        entry => Ok(entry.map(|(hosts, key)| Line { marker, hosts, key })),
    }
}
