//! Keys that live in ssh-agent.

use crate::transport::error::Cause;
use russh::keys::{
    HashAlg,
    agent::{AgentIdentity, client::AgentClient},
};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// An agent, and which of its keys is wanted.
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
        let cannot = |problem: String| Cause::Agent { socket: self.socket.display().to_string(), problem };
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| cannot(crate::transport::home::plain(&error)))?;
        let mut client = AgentClient::connect(stream);
        let mut identities = client.request_identities().await.map_err(|error| cannot(error.to_string()))?;
        if identities.is_empty() {
            return Err(cannot("it holds no key".to_owned()));
        }
        if let Some(wanted) = &self.identity {
            identities.retain(|identity| is_wanted(identity, wanted.trim()));
            if identities.is_empty() {
                return Err(cannot(format!("it holds no key that is {wanted:?}")));
            }
        }
        Ok(Opened { client, identities })
    }

    pub(crate) fn new(socket: &Path, identity: Option<String>) -> Self {
        Self { socket: socket.to_owned(), identity }
    }
}

fn is_wanted(identity: &AgentIdentity, wanted: &str) -> bool {
    let key = identity.public_key();
    let comment = match identity {
        AgentIdentity::PublicKey { comment, .. } | AgentIdentity::Certificate { comment, .. } => comment,
    };
    // The comment of a public key is no part of it.
    let same_key =
        russh::keys::PublicKey::from_openssh(wanted).is_ok_and(|it| it.key_data() == key.key_data());
    same_key || key.fingerprint(HashAlg::Sha256).to_string() == wanted || comment == wanted
}
