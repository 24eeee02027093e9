//! A jump host of `ssh.proxy_jump`.

use std::path::Path;

use grit_plugin::{
    Problems, attribute_map,
    schema::{AttributePath, Attributes, Value, required_text, secret, text},
};
use grit_ssh::{
    Attribute, CredentialSource, Hop, HostPort, KeySource, Login, SSH_PORT, Secret, check, expand,
};
use serde::{Deserialize, Serialize};

use super::{
    ssh_checks::{check_keys, check_needs_key, invalid},
    text::{UNKNOWN, check_address, set},
};

/// Has no `Debug`, because it contains secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct HopArgs {
    pub(super) address: Value<String>,
    username: Value<String>,
    pub(super) private_key: Value<String>,
    private_key_path: Value<String>,
    pub(super) passphrase: Value<String>,
    pub(super) certificate_path: Value<String>,
    pub(super) host_key: Value<String>,
}

impl HopArgs {
    pub(super) fn attributes() -> Attributes {
        attribute_map! {
            address: required_text => &format!(
                "Host name or IP address of the jump host, with or without a port (default {SSH_PORT})."
            ),
            username: text => "SSH user on the jump host. Default: the user for the runner manager.",
            private_key: secret => "Private key for the jump host. Default: the key for the runner manager.",
            private_key_path: text => "File with the private key for the jump host.",
            passphrase: secret => "Passphrase of the private key. Default: `ssh.passphrase`.",
            certificate_path: text => "File with an OpenSSH user certificate for the private key.",
            host_key: text =>
                "Expected host key: a public key or a `SHA256:` fingerprint. Default: the host keys of `ssh` (`known_hosts`, \
                 `host_keys`, `host_ca`).",
        }
    }

    pub(super) fn check(&self, path: &AttributePath, home: Option<&Path>, problems: &mut Problems) {
        let at = |name: &'static str| path.clone().attribute(name);
        check_address::<HostPort>(&self.address, at("address"), problems);
        let keys = [&self.private_key, &self.private_key_path, &self.certificate_path];
        check_keys(keys, path, home, problems);
        let of_key = [("certificate_path", &self.certificate_path), ("passphrase", &self.passphrase)];
        check_needs_key([&self.private_key, &self.private_key_path], &of_key, path, problems);
        if let Value::Value(keys) = &self.host_key
            && let Err(problem) = check::host_keys(keys)
        {
            invalid(at("host_key"), &problem, problems);
        }
    }

    /// The jump host with resolved values. Missing values are those of `login`, the login to the runner manager, and `passphrase`, the
    /// passphrase of the provider block. An unknown or invalid address becomes one that cannot be resolved: the jump host is never skipped.
    pub(super) fn hop(
        &self,
        index: usize,
        login: &Login,
        passphrase: Option<String>,
        home: Option<&Path>,
    ) -> Hop {
        let path = |value: &Value<String>| set(value).map(|path| expand(path.as_ref(), home));
        let text = set(&self.private_key)
            .map(|text| KeySource::Text(Secret::new(text), Attribute::Hop(index, "private_key")));
        let file = || {
            let path = path(&self.private_key_path)?;
            Some(KeySource::File(path, Attribute::Hop(index, "private_key_path")))
        };
        let own = text.or_else(file).map(|key| CredentialSource {
            private_key: Some(key),
            passphrase: set(&self.passphrase).or(passphrase).map(Secret::new),
            certificate_path: path(&self.certificate_path),
            agent: None,
        });
        Hop {
            address: set(&self.address).and_then(|text| text.parse().ok()).unwrap_or_else(nowhere),
            login: Login {
                username: set(&self.username).or_else(|| login.username.clone()),
                credentials: own.or_else(|| login.credentials.clone()),
            },
            host_key: self.host_key.as_ref_option().cloned(),
        }
    }
}

#[expect(clippy::expect_used, reason = "a constant")]
fn nowhere() -> HostPort {
    UNKNOWN.parse().expect("a valid host name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_with_unknown_address_keeps_placeholder() {
        let hop = HopArgs::default().hop(0, &Login::default(), None, None);
        assert_eq!(hop.address.host(), UNKNOWN);
    }
}
