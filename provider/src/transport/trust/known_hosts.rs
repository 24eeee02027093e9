//! The format of known_hosts files. Invalid lines are ignored.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::{key::HostKey, pattern};

/// The name of a host in known_hosts: `[host]:port`, or the plain host on the standard port.
pub(crate) fn lookup_name(host: &str, port: u16) -> String {
    let host = host.to_lowercase();
    if port == crate::transport::address::SSH_PORT { host } else { format!("[{host}]:{port}") }
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

/// The valid lines with their line numbers.
pub(super) fn parse(text: &[u8]) -> impl Iterator<Item = (usize, Line)> {
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    // A comment may have another encoding.
    lines.filter_map(|(line, number)| Some((number, parse_line(&String::from_utf8_lossy(line))?)))
}

fn parse_line(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next().filter(|word| !word.starts_with('#'))?;
    let (marker, hosts) = match first {
        "@cert-authority" => (Marker::CertAuthority, words.next()?),
        "@revoked" => (Marker::Revoked, words.next()?),
        marker if marker.starts_with('@') => return None,
        hosts => (Marker::None, hosts),
    };
    let key = HostKey::from_words(words.next()?, words.next()?)?;
    Some(Line { marker, hosts: Hosts::parse(hosts)?, key })
}
