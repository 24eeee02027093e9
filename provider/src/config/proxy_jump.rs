//! One SSH server of `ssh.proxy_jump`.

use std::{collections::HashMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::ssh::{UNKNOWN, set, text};
use crate::{
    config::required::check_set,
    schema::{
        Attribute, AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Value, attributes, required,
        sensitive,
    },
    transport::{HostPort, JumpOptions, SSH_PORT, Secret},
};

/// It has no `Debug`: it holds secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct HopArgs {
    address: Value<String>,
    username: Value<String>,
    private_key: Value<String>,
    private_key_path: Value<String>,
    pub(super) passphrase: Value<String>,
    certificate_path: Value<String>,
    host_key: Value<String>,
}

impl HopArgs {
    pub(super) fn attributes() -> HashMap<String, Attribute> {
        attributes([
            (
                "address",
                required(
                    AttributeType::String,
                    "Host name or IP address of the jump host, with or without a port (default 22).",
                ),
            ),
            ("username", text("SSH user on the jump host. Default: the user for the runner manager.")),
            (
                "private_key",
                sensitive(text("Private key for the jump host. Default: the key for the runner manager.")),
            ),
            ("private_key_path", text("File with the private key for the jump host.")),
            ("passphrase", sensitive(text("Passphrase of the private key. Default: `ssh.passphrase`."))),
            ("certificate_path", text("File with an OpenSSH user certificate for the private key.")),
            (
                "host_key",
                text(
                    "Expected host key: a public key or a `SHA256:` fingerprint. Default: the host keys of `ssh` (`known_hosts`, \
                     `host_keys`, `host_ca`).",
                ),
            ),
        ])
    }

    pub(super) fn check(&self, path: &AttributePath, diags: &mut Diagnostics) {
        check_set(&self.address, path.clone().attribute("address"), diags);
        if let Value::Value(address) = &self.address
            && let Err(error) = address.parse::<HostPort>()
        {
            let path = path.clone().attribute("address");
            let detail = format!("`{path}`: {error}.");
            diags.fail_at(path, "Invalid address", detail);
        }
        if set(&self.private_key).is_some() && set(&self.private_key_path).is_some() {
            diags.fail_at(
                path.clone().attribute("private_key_path"),
                "Conflicting private keys",
                format!("Set only one of `{path}.private_key` and `{path}.private_key_path`."),
            );
        }
    }

    pub(super) fn is_known(&self) -> bool {
        [
            &self.address,
            &self.username,
            &self.private_key,
            &self.private_key_path,
            &self.passphrase,
            &self.certificate_path,
            &self.host_key,
        ]
        .iter()
        .all(|value| !value.is_unknown())
    }

    /// As the transport takes it. An address that is unknown or malformed becomes one that no name server knows: the hop is never left
    /// out.
    pub(super) fn options(&self) -> JumpOptions {
        let address = set(&self.address).and_then(|text| text.parse().ok());
        JumpOptions {
            address: address.unwrap_or_else(nowhere),
            username: set(&self.username),
            private_key: set(&self.private_key).map(Secret::new),
            private_key_path: set(&self.private_key_path).map(PathBuf::from),
            passphrase: set(&self.passphrase).map(Secret::new),
            certificate_path: set(&self.certificate_path).map(PathBuf::from),
            host_key: set(&self.host_key),
        }
    }
}

#[expect(clippy::expect_used, reason = "a constant, made by a test, too")]
fn nowhere() -> HostPort {
    HostPort::new(UNKNOWN, SSH_PORT).expect("a plain host name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_with_unknown_address_keeps_placeholder() {
        assert_eq!(HopArgs::default().options().address.host(), UNKNOWN);
    }
}
