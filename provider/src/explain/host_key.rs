//! The words for a host key that is refused.

use crate::{
    explain::{Code, connection::Words, phrases::place},
    transport::{ExpectedKey, HostKeyRefusal, HostKeyVerdict, Route},
};

/// Why the key of a host was refused, and what to do about it.
pub(super) fn host_key(route: &Route, refusal: &HostKeyRefusal) -> Words {
    let HostKeyRefusal { key_type, fingerprint, expected, line, searched, problem, .. } = refusal;
    let shown = format!("{} shows the {key_type} key {fingerprint}", place(route));
    let known: Vec<String> = expected
        .iter()
        .map(|known| format!("{} {} ({})", known.key_type, known.fingerprint, known.source))
        .collect();
    let known = known.join(", ");
    let (summary, happened, next) = match refusal.verdict {
        HostKeyVerdict::Unknown => (
            "Unknown host key",
            format!("{shown}, and nothing is known about this host. Looked in {}.", listed(searched)),
            format!(
                "Compare the fingerprint with the one on the host (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`, or the console \
                 log of its first start). If it is the same, set `host_key` {}, or add this line to a known_hosts source:\n\n{line}",
                match route.hop {
                    Some(hop) => format!("of hop {hop} in `ssh.proxy_jump`"),
                    None => "in the entry of the manager".to_owned(),
                }
            ),
        ),
        HostKeyVerdict::Changed => (
            "Host key has changed",
            format!("{shown}, but known for this host is {known}. Somebody may be listening in."),
            format!(
                "Find out why before anything else. If the host was replaced, {}",
                replaced(expected, line)
            ),
        ),
        HostKeyVerdict::Revoked => (
            "Host key is revoked",
            format!("{shown}, which is marked as revoked ({known})."),
            "Give the host a new key. A revoked one is accepted by no other entry.".to_owned(),
        ),
        HostKeyVerdict::BadCertificate => (
            "Host certificate is not accepted",
            format!(
                "{shown} in a certificate that is not accepted: {}.",
                problem.as_deref().unwrap_or("it is not valid")
            ),
            format!("Sign the key of the host anew with a known authority: {known}."),
        ),
    };
    let mut happened = happened;
    if refusal.verdict != HostKeyVerdict::BadCertificate
        && let Some(problem) = problem
    {
        happened.push_str(&format!(" As to its certificate: {problem}."));
    }
    (Code::Refused, summary, happened, next)
}

/// What to do about a host that has a new key for a good reason: change the attribute that pins the old one, or the known_hosts line.
fn replaced(expected: &[ExpectedKey], line: &str) -> String {
    let is_attribute = |source: &str| source.ends_with("host_key") || source.starts_with("ssh.host_keys[");
    let pinned: Vec<_> =
        expected.iter().map(|known| known.source.as_str()).filter(|it| is_attribute(it)).collect();
    if pinned.is_empty() {
        return format!("remove the old line and add this one:\n\n{line}");
    }
    let mut names: Vec<String> = pinned.iter().map(|name| format!("`{name}`")).collect();
    names.dedup();
    let key = line.split_once(' ').map_or(line, |(_, key)| key);
    format!("set {} to its new key:\n\n{key}", names.join(" or "))
}

fn listed(places: &[String]) -> String {
    if places.is_empty() { "no place at all".to_owned() } else { places.join(", ") }
}
