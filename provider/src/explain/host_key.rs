//! Texts for a host key that is rejected.

use grit_plugin::Problem;
use grit_ssh::{ExpectedKey, HostKeyRefusal, HostKeyVerdict, KeyOrigin, Route};

use super::{
    code::Code,
    phrases::{own_line, server},
};

const GUIDE: &str = "How to provide the keys of new hosts: \
                     https://registry.terraform.io/providers/runner-tools/grit/latest/docs/guides/host-keys";

pub(super) fn host_key(route: &Route, refusal: &HostKeyRefusal) -> Problem {
    let HostKeyRefusal { key_type, fingerprint, expected, line, searched, problem, .. } = refusal;
    let presented = format!("{} presented the {key_type} key {fingerprint}", server(route));
    let certificate =
        format!("{} presented a host certificate ({key_type} key {fingerprint})", server(route));
    let known: Vec<String> = expected
        .iter()
        .map(|known| format!("{} {} ({})", known.key_type, known.fingerprint, known.source))
        .collect();
    let known = known.join(", ");
    let (summary, mut happened, next) = match refusal.verdict {
        HostKeyVerdict::Unknown => (
            "Unknown host key",
            format!("{presented}. No key is known for this host. Sources searched: {}.", listed(searched)),
            format!(
                "Compare the fingerprint with the fingerprint on the host (`ssh-keygen -lf {}`, or the console log of the first boot). If both \
                 are equal, set `host_key` of {}, or add this line to a known_hosts source:{}\n\n{GUIDE}",
                file_of(key_type),
                match route.hop {
                    Some(hop) => format!("jump host {hop} in `ssh.proxy_jump`"),
                    None => "the runner manager".to_owned(),
                },
                own_line(line)
            ),
        ),
        HostKeyVerdict::Changed => (
            "Host key has changed",
            format!("{presented}. Expected: {known}. This can be a man-in-the-middle attack."),
            format!(
                "Find the cause before you continue. If the host was replaced, {}\n\n{GUIDE}",
                replaced(expected, line)
            ),
        ),
        HostKeyVerdict::Revoked => (
            "Host key is revoked",
            format!("{presented}. This key is revoked: {known}."),
            "Create a new host key on the host. A `@revoked` line overrides all other entries for the key."
                .to_owned(),
        ),
        HostKeyVerdict::RevokedAuthority => (
            "Authority of host certificate is revoked",
            format!("{certificate}. The key of the authority that signed the certificate is revoked: {known}."),
            "Sign the host key with another authority, and trust that authority. A `@revoked` line overrides all other entries for the key."
                .to_owned(),
        ),
        HostKeyVerdict::BadCertificate => (
            "Host certificate is not accepted",
            format!(
                "{certificate}. The certificate is not accepted: {}.",
                problem.as_deref().unwrap_or("it is not valid")
            ),
            format!("Sign the host key with a trusted authority: {known}."),
        ),
    };
    if refusal.verdict != HostKeyVerdict::BadCertificate
        && let Some(problem) = problem
    {
        happened.push_str(&format!(" The host certificate is not accepted: {problem}."));
    }
    Problem::new(Code::Refused, summary, happened, next)
}

/// The file of a host key with sshd's default settings.
fn file_of(key_type: &str) -> &'static str {
    match key_type {
        "ssh-ed25519" => "/etc/ssh/ssh_host_ed25519_key.pub",
        "ssh-rsa" => "/etc/ssh/ssh_host_rsa_key.pub",
        name if name.starts_with("ecdsa-sha2-") => "/etc/ssh/ssh_host_ecdsa_key.pub",
        _ => "KEY.pub",
    }
}

/// The next step for a replaced host: change the attribute that contains the old key, or the known_hosts line.
fn replaced(expected: &[ExpectedKey], line: &str) -> String {
    let attributes: Vec<_> =
        expected.iter().filter(|known| matches!(known.source, KeyOrigin::Attribute(_))).collect();
    if attributes.is_empty() {
        return format!("replace the old line with this line:{}", own_line(line));
    }
    let mut names: Vec<String> = attributes.iter().map(|known| format!("`{}`", known.source)).collect();
    names.dedup();
    let key = line.split_once(' ').map_or(line, |(_, key)| key);
    format!("set {} to the new key:{}", names.join(" or "), own_line(key))
}

fn listed(sources: &[String]) -> String {
    if sources.is_empty() { "none".to_owned() } else { sources.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_key_names_file_of_its_type() {
        for (key_type, file) in [
            ("ssh-ed25519", "/etc/ssh/ssh_host_ed25519_key.pub"),
            ("ecdsa-sha2-nistp256", "/etc/ssh/ssh_host_ecdsa_key.pub"),
            ("ecdsa-sha2-nistp521", "/etc/ssh/ssh_host_ecdsa_key.pub"),
            ("ssh-rsa", "/etc/ssh/ssh_host_rsa_key.pub"),
            ("ssh-ed448", "KEY.pub"),
        ] {
            let refusal = HostKeyRefusal {
                verdict: HostKeyVerdict::Unknown,
                key_type: key_type.to_owned(),
                fingerprint: "SHA256:x".to_owned(),
                expected: Vec::new(),
                line: "h KEY".to_owned(),
                searched: Vec::new(),
                problem: None,
            };
            let explained = host_key(&crate::client::example_route(), &refusal);
            let command = format!("(`ssh-keygen -lf {file}`,");
            assert!(explained.next_step.contains(&command), "{key_type}: {}", explained.next_step);
        }
    }
}
