//! An sshd, a wrapper behind it, and an authorized client.

use crate::{methods::CARRY, stub::Wrapper};
use grit_provider::testing::{
    client::ClientError,
    explain::explain,
    transport::{HostPort, Secret},
};
use grit_tests::provider_client::{Connector, SshOptions, Target, TrustOptions};
use grit_tests::sshd::{Builder, ClientKey, Sshd, without_advice_for_root};
use std::{os::unix::fs::PermissionsExt as _, time::Duration};
use tempfile::TempDir;

pub(crate) struct Fixture {
    pub(crate) sshd: Sshd,
    pub(crate) wrapper: Wrapper,
    pub(crate) key: ClientKey,
    pub(crate) dir: TempDir,
}

impl Fixture {
    /// Starts the servers, with a wrapper on a unix socket.
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = ClientKey::generate(dir.path(), "client", "ed25519", "").unwrap();
        let sshd = change(Sshd::builder().authorize(&key)).start().unwrap();
        let wrapper = Wrapper::unix(&dir.path().join("wrapper.sock"));
        // For logins of other users than the one who runs the test.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { sshd, wrapper, key, dir }
    }

    pub(crate) fn target(&self) -> Target {
        let address = self.sshd.address();
        Target {
            manager: "mgr-1".to_owned(),
            instance_name: "runner-manager-1".to_owned(),
            instance_id: None,
            address: address.to_string().parse::<HostPort>().unwrap(),
            wrapper_address: self.wrapper.address.parse().unwrap(),
            username: None,
            private_key: None,
            host_key: None,
        }
    }

    pub(crate) fn options(&self) -> SshOptions {
        SshOptions {
            username: Some(self.sshd.username()),
            private_key: Some(Secret::new(self.key.private.clone())),
            trust: TrustOptions { known_hosts: Some(self.sshd.known_hosts()), ..TrustOptions::default() },
            ..SshOptions::default()
        }
    }

    pub(crate) fn connector(&self) -> Connector {
        Connector::new(self.options())
    }

    /// The user's message of an error, with variable parts replaced.
    pub(crate) fn message(&self, error: &ClientError) -> String {
        let explained = explain("mgr-1", error);
        let text = format!("{}\n\n{}", explained.summary, explained.detail());
        let mut text = without_advice_for_root(&text);
        let address = self.sshd.address();
        let mut replace = |from: &str, to: &str| {
            if !from.is_empty() {
                text = text.replace(from, to);
            }
        };
        replace(&address.to_string(), "HOST:PORT");
        replace(&format!("[{}]:{}", address.ip(), address.port()), "[HOST]:PORT");
        replace(&address.ip().to_string(), "HOST");
        replace(&address.port().to_string(), "PORT");
        replace(&self.key.fingerprint, "SHA256:CLIENT");
        for key in self.sshd.host_keys() {
            let blob = key.split(' ').nth(1).unwrap();
            replace(blob, "HOSTKEY");
        }
        replace(&self.dir.path().display().to_string(), "DIR");
        replace(&self.sshd.dir().display().to_string(), "SSHD");
        // Before the user name, which is part of the path in the home directory of that user.
        replace(CARRY, "CARRY");
        // Not a part of a word, such as `ChrootDirectory`.
        let username = self.sshd.username();
        let is_word = |(at, _): &(usize, &str)| {
            let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            !is_letter(text[..*at].chars().next_back())
                && !is_letter(text[at + username.len()..].chars().next())
        };
        let places: Vec<usize> = text.match_indices(&username).filter(is_word).map(|(at, _)| at).collect();
        for at in places.into_iter().rev() {
            text.replace_range(at..at + username.len(), "USER");
        }
        text
    }
}

/// Runs a future with a limit for broken tests.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("not within a minute")
}
