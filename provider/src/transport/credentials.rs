//! Which user and which keys are used where: the provider block first, then the entry of the manager.

use crate::transport::{
    AgentOptions, JumpOptions, Secret, SshOptions, Target,
    error::{Cause, KeyError},
    ssh::{self, Agent, Credential, PrivateKey},
    user_files,
};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::OnceCell;

/// A key without a passphrase that has no more text than this is read in less time than another thread takes to wake up: ed25519 and
/// ECDSA keys in every format. RSA keys are longer, and cost milliseconds of arithmetic.
const SHORT_KEY: usize = 1 << 10;

/// A user and what it logs in with.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) username: String,
    pub(crate) credentials: Vec<Credential>,
    /// Tells identities apart without holding a secret: fingerprints, and the agent's socket.
    pub(crate) name: String,
}

/// Keys that were decrypted, or could not be, by the digest of their source, text and passphrase: decryption costs 150 ms and more, and
/// is tried once.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    keys: Mutex<HashMap<[u8; 32], Arc<OnceCell<Loaded>>>>,
}

type Loaded = Result<PrivateKey, KeyError>;

/// The attributes of one place that can hold a key.
struct Place<'a> {
    text: Option<&'a Secret>,
    path: Option<&'a PathBuf>,
    passphrase: Option<&'a Secret>,
    certificate: Option<&'a PathBuf>,
    agent: Option<&'a AgentOptions>,
    /// The attribute's name, as `ssh.private_key`, for the errors.
    name: String,
}

impl Place<'_> {
    fn is_silent(&self) -> bool {
        self.text.is_none() && self.path.is_none() && self.agent.is_none()
    }
}

impl Keyring {
    /// Who logs in to a manager. Reads and decrypts what is needed, off the async threads.
    pub(crate) async fn of_target(&self, options: &SshOptions, target: &Target) -> Result<Identity, Cause> {
        let username = options.username.as_ref().or(target.username.as_ref()).ok_or(Cause::NoUsername)?;
        self.identity(options, username, &[block(options), entry(options, target)]).await
    }

    /// Who logs in to a server on the way. What the hop does not name is taken as for the manager.
    pub(crate) async fn of_hop(
        &self,
        options: &SshOptions,
        target: &Target,
        hop: &JumpOptions,
        index: usize,
    ) -> Result<Identity, Cause> {
        let username = hop.username.as_ref().or(options.username.as_ref()).or(target.username.as_ref());
        let own = Place {
            text: hop.private_key.as_ref(),
            path: hop.private_key_path.as_ref(),
            passphrase: hop.passphrase.as_ref().or(options.passphrase.as_ref()),
            certificate: hop.certificate_path.as_ref(),
            agent: None,
            name: format!("ssh.proxy_jump[{index}].private_key"),
        };
        let places = [own, block(options), entry(options, target)];
        self.identity(options, username.ok_or(Cause::NoUsername)?, &places).await
    }

    /// The first place that names a key or an agent is the one that counts.
    async fn identity(
        &self,
        options: &SshOptions,
        username: &str,
        places: &[Place<'_>],
    ) -> Result<Identity, Cause> {
        let place = places.iter().find(|place| !place.is_silent()).ok_or(Cause::NoCredential)?;
        let home = options.home.as_deref();
        let mut credentials = Vec::new();
        let mut name = String::new();
        if place.text.is_some() || place.path.is_some() {
            let key = self.key(place, home).await.map_err(Cause::Key)?;
            name.push_str(&key.fingerprint());
            if let Some(path) = place.certificate {
                let path = user_files::expand(path, home);
                let source = user_files::shown(&path);
                let text = read(path).await.map_err(Cause::Key)?;
                let certified = ssh::load_certificate(text.expose(), &key, &source).map_err(Cause::Key)?;
                let _ = write!(name, "+{}", digest(&[text.expose()]).escape_ascii());
                credentials.push(Credential::Certified(certified));
            }
            credentials.push(Credential::Key(key));
        }
        if let Some(agent) = place.agent {
            let socket = agent.socket.as_deref().ok_or_else(|| Cause::Agent {
                socket: "SSH_AUTH_SOCK".to_owned(),
                problem: "the environment variable is not set".to_owned(),
            })?;
            let agent = Agent::new(&user_files::expand(socket, home), agent.identity.clone());
            let _ = write!(name, "+{agent:?}");
            credentials.push(Credential::Agent(agent));
        }
        Ok(Identity { username: username.to_owned(), credentials, name })
    }

    async fn key(&self, place: &Place<'_>, home: Option<&Path>) -> Result<PrivateKey, KeyError> {
        let (text, source) = match (place.text, place.path) {
            (Some(text), _) => (text.clone(), place.name.clone()),
            (None, Some(path)) => {
                let path = user_files::expand(path, home);
                let source = format!("{}_path ({})", place.name, user_files::shown(&path));
                (read(path).await?, source)
            }
            (None, None) => return Err(unreadable(&place.name, "no key is configured".to_owned())),
        };
        let passphrase = place.passphrase.cloned();
        let id = digest(&[&source, text.expose(), passphrase.as_ref().map_or("", Secret::expose)]);
        let cell = {
            let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(keys.entry(id).or_default())
        };
        let load = || async {
            if passphrase.is_none() && text.expose().len() <= SHORT_KEY {
                return ssh::load_key(&text, None, &source);
            }
            let blocking = tokio::task::spawn_blocking({
                let source = source.clone();
                move || ssh::load_key(&text, passphrase.as_ref(), &source)
            });
            blocking.await.unwrap_or_else(|error| Err(unreadable(&source, error.to_string())))
        };
        cell.get_or_init(load).await.clone()
    }
}

fn block(options: &SshOptions) -> Place<'_> {
    Place {
        text: options.private_key.as_ref(),
        path: options.private_key_path.as_ref(),
        passphrase: options.passphrase.as_ref(),
        certificate: options.certificate_path.as_ref(),
        agent: options.agent.as_ref(),
        name: "ssh.private_key".to_owned(),
    }
}

fn entry<'a>(options: &'a SshOptions, target: &'a Target) -> Place<'a> {
    Place {
        text: target.private_key.as_ref(),
        path: None,
        passphrase: options.passphrase.as_ref(),
        certificate: options.certificate_path.as_ref(),
        agent: None,
        name: "ssh_key_pem".to_owned(),
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
