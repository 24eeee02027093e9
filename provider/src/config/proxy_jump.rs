//! A jump host of `ssh.proxy_jump`.

use std::path::Path;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value, required_text, text},
};
use grit_ssh::{Attribute, CredentialSource, Hop, HostPort, Login, SSH_PORT, Secret};

use super::{
    object::{Object as _, object},
    private_key::KeyArgs,
    ssh_checks::check_host_keys,
    text::{UNKNOWN, check_address, set},
};

object! {
    /// Has no `Debug`, because it contains secrets.
    pub(crate) struct HopArgs {
        pub(super) address: Value<String> = required_text => format!(
            "Host name or IP address of the jump host, with or without a port (default {SSH_PORT})."
        ), check_address::<HostPort>;
        username: Value<String> = text => "SSH user on the jump host. Default: the user for the runner manager.";
        pub(super) host_key: Value<String> = text =>
            "Expected host key: a public key or a `SHA256:` fingerprint. Default: the host keys of `ssh` (`known_hosts`, \
             `host_keys`, `host_ca`).", check_host_keys;
        ..pub(super) key: KeyArgs(
            "Private key for the jump host. Default: the key for the runner manager.",
            "File with the private key for the jump host.",
            "Passphrase of the private key. Default: `ssh.passphrase`.",
            "File with an OpenSSH user certificate for the private key."
        );
    }
}

impl HopArgs {
    /// Reads the files.
    pub(super) fn check_in(&self, home: Option<&Path>, path: &AttributePath, problems: &mut Problems) {
        self.check_at(path, problems);
        self.key.check_files(path, home);
        let of_key = [("certificate_path", &self.key.certificate_path), ("passphrase", &self.key.passphrase)];
        self.key.check_needs_key(&of_key, path, problems);
    }

    /// The jump host with resolved values. Missing values are those of `login`, the login to the runner manager, and `passphrase`, the
    /// passphrase of the provider block. An unknown or invalid address becomes a host name that cannot be resolved: the jump host is never skipped.
    pub(super) fn hop(
        &self,
        index: usize,
        login: &Login,
        passphrase: Option<String>,
        home: Option<&Path>,
    ) -> Hop {
        let own = self.key.source(|name| Attribute::Hop(index, name), home).map(|key| {
            let own = self.key.credentials(Some(key), home);
            CredentialSource { passphrase: own.passphrase.or(passphrase.map(Secret::new)), ..own }
        });
        Hop {
            address: set(&self.address).and_then(|text| text.parse().ok()).unwrap_or_else(unknown_address),
            login: Login {
                username: set(&self.username).or_else(|| login.username.clone()),
                credentials: own.or_else(|| login.credentials.clone()),
            },
            host_key: self.host_key.as_ref_option().cloned(),
        }
    }
}

#[expect(clippy::expect_used, reason = "a constant")]
fn unknown_address() -> HostPort {
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
