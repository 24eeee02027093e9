//! Texts for the login at an SSH server: the user, the key, the agent, the rejection.

use std::time::Duration;

use grit_plugin::Problem;
use grit_ssh::{KeyError, OfferedCertificate, Route};

use super::{code::Code, phrases::server};
use crate::duration::human;

pub(super) fn user(route: &Route) -> String {
    route.username.as_ref().map_or_else(|| "the user".to_owned(), |name| format!("{name:?}"))
}

pub(super) fn no_username(route: &Route) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "No SSH user",
        format!("no SSH user is configured for {}.", server(route)),
        "Set `username` of the runner manager, `ssh.username` in the provider block, or the environment variable GRIT_SSH_USERNAME.",
    )
}

pub(super) fn no_credential(route: &Route) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "No SSH key",
        format!("no SSH key and no SSH agent is configured for {}.", server(route)),
        "Set one of these:\n- provider block: `ssh.private_key`, `ssh.private_key_path` or `ssh.agent`\n- environment: \
         GRIT_SSH_PRIVATE_KEY or GRIT_SSH_PRIVATE_KEY_PATH\n- runner manager: `ssh_key_pem`\n\nAn empty value counts as not set. For a \
         server that requires no key, set any key.",
    )
}

pub(super) fn bad_key(key: &KeyError) -> Problem {
    let next = match key {
        KeyError::NoPassphrase { .. } => {
            "Set `ssh.passphrase` in the provider block, or the environment variable GRIT_SSH_PASSPHRASE."
                .to_owned()
        }
        KeyError::WrongPassphrase { check, .. } => format!(
            "Check `ssh.passphrase`: `{check}` requests the passphrase and shows whether it is correct. If you read the passphrase with \
             `file()`, wrap it in `trimspace()` to remove the trailing newline."
        ),
        KeyError::Unreadable { .. } => {
            "Check the path, and check that the user who runs Terraform has read permission.".to_owned()
        }
        KeyError::Certificate { .. } => {
            "`ssh-keygen -Lf CERTIFICATE` shows the certificate, and `ssh-keygen -lf KEY` shows the key."
                .to_owned()
        }
        KeyError::Unusable { check, .. } => {
            format!("`{check}` shows whether the key can be read.")
        }
    };
    Problem::new(Code::InvalidConfig, "SSH key cannot be used", format!("{key}."), next)
}

pub(super) fn agent(socket: &str, problem: &str) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "SSH agent cannot be used",
        format!("the SSH agent at {socket} cannot be used: {problem}."),
        "Start ssh-agent on the host that runs Terraform, add the key with `ssh-add`, and check it with `ssh-add -l`; or set \
         `ssh.private_key`.",
    )
}

pub(super) fn agent_key(socket: &str, identity: &str) -> Problem {
    let next = if identity.starts_with("MD5:") {
        "MD5 fingerprints are not supported: `ssh-add -l` prints the SHA256 fingerprint of each key."
    } else if identity.starts_with(['/', '~', '.']) {
        "If `ssh.agent.identity` is a path, set it to the content of the file: `file(\"KEY.pub\")`."
    } else {
        "`ssh-add -L` lists the keys of the agent. If the key is missing, add it with `ssh-add`."
    };
    Problem::new(
        Code::InvalidConfig,
        "SSH agent cannot be used",
        format!(
            "the SSH agent at {socket} has no key that matches `ssh.agent.identity` ({identity:?}). The attribute must be a public key, a SHA256 \
             fingerprint or the comment of a key."
        ),
        next,
    )
}

pub(super) fn agent_timed_out(socket: &str, limit: Duration) -> Problem {
    Problem::new(
        Code::ConnectFailed,
        "SSH agent does not respond",
        format!("the SSH agent at {socket} did not respond within {}.", human(limit)),
        "Check the agent with `ssh-add -l`. The agent may hang, or wait for a confirmation or for the touch of a security key.",
    )
}

pub(super) fn refused(
    route: &Route,
    offered: &[String],
    not_offered: usize,
    certificates: &[OfferedCertificate],
    remaining: &[String],
    unused_certificate: Option<&str>,
) -> Problem {
    let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
    let mut happened =
        format!("{} rejected the login of {}. Keys offered: {offered}.", server(route), user(route));
    let mut next = String::new();
    if remaining.iter().any(|method| method == "publickey") {
        if not_offered > 0 {
            happened.push_str(&format!(" {not_offered} more keys of the agent were not offered."));
            next.push_str(
                "If the server accepts one of these keys, select this key with `ssh.agent.identity`. ",
            );
        }
        for OfferedCertificate { id, authority, problems } in certificates {
            happened.push_str(&format!(" The certificate {id:?} was signed by {authority}."));
            if !problems.is_empty() {
                happened.push_str(&format!(" This certificate {}.", problems.join("; it ")));
            }
        }
        let certificate = match certificates {
            [] => "",
            _ => ", or that the server trusts the authority of the certificate (`TrustedUserCAKeys`)",
        };
        if certificates.iter().any(|certificate| !certificate.problems.is_empty()) {
            next.push_str("Sign a new certificate if the current one is the cause. ");
        }
        if let Some(certificate) = unused_certificate {
            happened.push_str(&format!(" The key has a certificate, {certificate}, which was not used."));
            next.push_str(&format!("To use the certificate, set `certificate_path` to {certificate:?} beside `private_key_path`. "));
        }
        if offered.contains("ssh-rsa ") {
            next.push_str(
                "If all other keys work, the server may refuse the size of the RSA key (`RequiredRSASize`) or its signatures \
                 (`PubkeyAcceptedAlgorithms`). ",
            );
        }
        next.push_str(&format!(
            "Check that the user exists, is allowed to log in (`AllowUsers`), and has the key in its authorized_keys{certificate}. The \
             log of the SSH server shows the cause. The provider does not retry this login, because repeated failures can lock the account."
        ));
    } else {
        if remaining.is_empty() {
            happened.push_str(" The server offers no authentication method that this provider supports.");
        } else {
            happened.push_str(&format!(
                " The server does not accept public keys. Accepted methods: {}.",
                remaining.join(", ")
            ));
        }
        next.push_str("Allow `PubkeyAuthentication` for this user in the server's sshd_config.");
    }
    Problem::new(Code::Refused, "Login refused", happened, next)
}

pub(super) fn too_many_attempts(route: &Route) -> Problem {
    Problem::new(
        Code::Refused,
        "Login refused",
        format!("{} ended the login of {}: too many authentication failures.", server(route), user(route)),
        "Check the user and the key. If an agent offers more keys than the server accepts (`MaxAuthTries`), select the key with \
         `ssh.agent.identity`. The provider does not retry this login, because repeated failures can lock the account.",
    )
}

pub(super) fn more_factors(route: &Route, wanted: &str) -> Problem {
    Problem::new(
        Code::Refused,
        "Login refused",
        format!(
            "{} accepted the key of {} but requires a further factor ({wanted}), which the provider cannot supply.",
            server(route),
            user(route)
        ),
        "Allow this user to log in with a key only (`AuthenticationMethods publickey` in a `Match` block of sshd_config).",
    )
}
