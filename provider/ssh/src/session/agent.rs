//! Keys of ssh-agent.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use parking_lot::Mutex;
use russh::{
    AgentAuthError, Signer,
    keys::{
        HashAlg,
        agent::{AgentIdentity, client::AgentClient},
    },
};
use tokio::net::UnixStream;

use crate::{
    error::{Cause, Peer},
    trust, user_files,
};

/// An agent, and the key of it to use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Agent {
    pub(crate) socket: PathBuf,
    /// A public key, a `SHA256:` fingerprint, or a comment.
    pub(crate) identity: Option<String>,
}

/// A connection to an agent, and the keys to try, in the agent's order.
pub(super) struct Opened {
    pub(super) client: AgentClient<UnixStream>,
    pub(super) identities: Vec<AgentIdentity>,
}

impl Agent {
    pub(super) async fn open(&self) -> Result<Opened, Cause> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| self.cannot(user_files::plain(&error)))?;
        let mut client = AgentClient::connect(stream);
        let mut identities =
            client.request_identities().await.map_err(|error| self.cannot(error.to_string()))?;
        if identities.is_empty() {
            return Err(self.cannot("it has no keys".to_owned()));
        }
        if let Some(wanted) = &self.identity {
            identities.retain(|identity| is_wanted(identity, wanted.trim()));
            if identities.is_empty() {
                return Err(Cause::AgentKey {
                    socket: user_files::shown(&self.socket),
                    identity: wanted.clone(),
                });
            }
        }
        Ok(Opened { client, identities })
    }

    /// The error of an agent that cannot be used.
    pub(super) fn cannot(&self, problem: String) -> Cause {
        Cause::Agent { socket: user_files::shown(&self.socket), problem }
    }

    /// The error of an agent that does not respond.
    pub(super) fn no_response(&self, limit: Duration) -> Cause {
        Cause::NoResponse { from: Peer::Agent { socket: user_files::shown(&self.socket) }, limit }
    }

    pub(crate) fn new(socket: &Path, identity: Option<String>) -> Self {
        Self { socket: socket.to_owned(), identity }
    }
}

/// The agent whose response is awaited: its timeout must not be reported as a timeout of the server.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Option<Agent>>);

impl Waiting {
    /// The agent that had not responded when the login timed out.
    pub(super) fn agent(&self) -> Option<Agent> {
        self.0.lock().clone()
    }

    pub(super) async fn during<T>(&self, agent: &Agent, asking: impl Future<Output = T>) -> T {
        self.set(Some(agent.clone()));
        let answer = asking.await;
        self.set(None);
        answer
    }

    fn set(&self, agent: Option<Agent>) {
        *self.0.lock() = agent;
    }
}

/// Signs with an agent.
pub(super) struct Signing<'a> {
    pub(super) client: &'a mut AgentClient<UnixStream>,
    pub(super) agent: &'a Agent,
    pub(super) waiting: &'a Waiting,
}

impl Signer for Signing<'_> {
    type Error = AgentAuthError;

    async fn auth_sign(
        &mut self,
        key: &AgentIdentity,
        hash: Option<HashAlg>,
        to_sign: Vec<u8>,
    ) -> Result<Vec<u8>, AgentAuthError> {
        self.waiting.during(self.agent, self.client.auth_sign(key, hash, to_sign)).await
    }
}

fn is_wanted(identity: &AgentIdentity, wanted: &str) -> bool {
    let key = identity.public_key();
    let comment = match identity {
        AgentIdentity::PublicKey { comment, .. } | AgentIdentity::Certificate { comment, .. } => comment,
    };
    // The comment is not part of a public key.
    let same_key =
        russh::keys::PublicKey::from_openssh(wanted).is_ok_and(|it| it.key_data() == key.key_data());
    let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
    same_key
        || comment == wanted
        || trust::fingerprint_in(wanted).is_some_and(|it| fingerprint_is(&fingerprint, it))
}

/// Whether these are the characters after `SHA256:`, possibly with padding.
fn fingerprint_is(fingerprint: &str, digest: &str) -> bool {
    fingerprint.strip_prefix("SHA256:") == Some(digest.trim_end_matches('='))
}
