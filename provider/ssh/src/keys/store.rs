//! The credentials of a login. Keys are read and decrypted once.

use std::{collections::HashMap, fmt::Write as _, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::{
    error::Cause,
    keys,
    keys::error::KeyError,
    secret::Secret,
    session::{Agent, Credential, PrivateKey},
    target::{CredentialSource, KeySource, Login},
    user_files,
};

/// Shorter keys without a passphrase (Ed25519 and ECDSA in all formats) are parsed faster than another thread starts. RSA keys are longer,
/// and take milliseconds.
const SHORT_KEY: usize = 1 << 10;

/// A user with credentials.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) username: String,
    pub(crate) credentials: Vec<Credential>,
    /// Identifies the credentials without a secret: fingerprints, and the agent's socket.
    pub(crate) name: String,
}

/// Decrypted keys, and errors, by the digest of source, text and passphrase: decryption takes 150 ms or more, and is tried once.
#[derive(Debug, Default)]
pub(crate) struct KeyStore {
    keys: Mutex<HashMap<[u8; 32], Arc<OnceCell<Loaded>>>>,
}

type Loaded = Result<PrivateKey, KeyError>;

impl KeyStore {
    /// Reads and decrypts the credentials of a login, off the async threads.
    pub(crate) async fn load(&self, login: &Login) -> Result<Identity, Cause> {
        let username = login.username.clone().ok_or(Cause::NoUsername)?;
        let source = login.credentials.as_ref().ok_or(Cause::NoCredential)?;
        let mut credentials = Vec::new();
        let mut name = String::new();
        if let Some(key) = &source.private_key {
            let key = self.key(source, key).await.map_err(Cause::Key)?;
            name.push_str(&key.fingerprint());
            if let Some(path) = &source.certificate_path {
                let shown = user_files::shown(path);
                let text = read(path.clone()).await.map_err(Cause::Key)?;
                let certified = keys::load_certificate(text.expose(), &key, &shown).map_err(Cause::Key)?;
                let _ = write!(name, "+{}", digest(&[text.expose()]).escape_ascii());
                credentials.push(Credential::CertifiedKey(certified));
            }
            credentials.push(Credential::Key(key));
        }
        if let Some(agent) = &source.agent {
            let socket = agent.socket.as_deref().ok_or_else(|| Cause::Agent {
                socket: "SSH_AUTH_SOCK".to_owned(),
                problem: "the environment variable is not set".to_owned(),
            })?;
            let agent = Agent::new(socket, agent.identity.clone());
            let _ = write!(name, "+{agent:?}");
            credentials.push(Credential::Agent(agent));
        }
        Ok(Identity { username, credentials, name })
    }

    async fn key(&self, source: &CredentialSource, key: &KeySource) -> Result<PrivateKey, KeyError> {
        let (text, source_name) = match key {
            KeySource::Text(text, attribute) => (text.clone(), attribute.to_string()),
            KeySource::File(path, attribute) => {
                (read(path.clone()).await?, format!("{attribute} ({})", user_files::shown(path)))
            }
        };
        let passphrase = source.passphrase.clone();
        let id = digest(&[&source_name, text.expose(), passphrase.as_ref().map_or("", Secret::expose)]);
        let cell = {
            let mut keys = self.keys.lock();
            Arc::clone(keys.entry(id).or_default())
        };
        let load = || async {
            if passphrase.is_none() && text.expose().len() <= SHORT_KEY {
                return keys::load(&text, None, &source_name);
            }
            let blocking = tokio::task::spawn_blocking({
                let source_name = source_name.clone();
                move || keys::load(&text, passphrase.as_ref(), &source_name)
            });
            blocking.await.unwrap_or_else(|error| Err(unreadable(&source_name, error.to_string())))
        };
        cell.get_or_init(load).await.clone()
    }
}

async fn read(path: PathBuf) -> Result<Secret, KeyError> {
    let name = user_files::shown(&path);
    let reading = tokio::task::spawn_blocking(move || user_files::read_text(&path));
    let read = reading.await.unwrap_or_else(|error| Err(error.to_string()));
    read.map_err(|problem| unreadable(&name, problem))
}

fn unreadable(path: &str, problem: String) -> KeyError {
    KeyError::Unreadable { path: path.to_owned(), problem }
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}
