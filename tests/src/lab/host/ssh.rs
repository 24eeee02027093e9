//! The SSH server of a host: sshd if it is installed, otherwise the embedded server.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;

use crate::{
    ssh_server::{KeyPair, SshServer},
    sshd::{self, Sshd},
};

/// The path of the wrapper's socket on a real host.
pub const USUAL_SOCKET: &str = "/run/grit-wrapper/gitlab-runner.service.sock";

/// The server to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Choice {
    /// sshd if it is installed.
    #[default]
    Best,
    /// Always the embedded server.
    Embedded,
    /// The embedded server with this host key (an OpenSSH private key). It maps [`USUAL_SOCKET`] to the wrapper's socket, as a
    /// configuration for real hosts expects.
    Image { host_key: String },
    /// A server that several hosts share: several runner managers on one machine.
    Shared(Shared),
}

/// The SSH server of a machine with several runner managers, each of which is a host of the lab. Clones share it.
#[derive(Debug, Clone)]
pub struct Shared {
    server: Arc<Mutex<Option<Ssh>>>,
    address: String,
    host_key: String,
    kind: &'static str,
}

impl Shared {
    /// Starts sshd if it is installed, otherwise the embedded server.
    pub fn start(client: &ClientKey) -> anyhow::Result<Self> {
        let server = Ssh::start(&Choice::Best, client, Path::new(""))?;
        let (address, host_key, kind) = (server.address(), server.host_key().to_owned(), server.kind());
        Ok(Self { server: Arc::new(Mutex::new(Some(server))), address, host_key, kind })
    }

    /// Ends the server and its sessions: the machine is unreachable.
    pub fn end(&self) {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.server, &other.server)
    }
}

impl Eq for Shared {}

/// The key that logs in to every host of a lab. Created without ssh-keygen, which may not be installed.
#[derive(Debug, Clone)]
pub struct ClientKey {
    /// The private key, an OpenSSH file without a passphrase.
    pub path: PathBuf,
    /// The line for `authorized_keys`.
    pub public: String,
}

impl ClientKey {
    /// Makes a new key in `folder`.
    pub fn make(folder: &Path) -> anyhow::Result<ClientKey> {
        let KeyPair { private, public } = KeyPair::generate()?;
        let path = folder.join("id_ed25519");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("create {}", path.display()))?;
        file.write_all(private.as_bytes()).with_context(|| format!("write {}", path.display()))?;
        Ok(ClientKey { path, public })
    }

    /// The text of the private key.
    pub fn pem(&self) -> anyhow::Result<String> {
        fs::read_to_string(&self.path).with_context(|| format!("read {}", self.path.display()))
    }
}

/// A running SSH server with all its sessions; dropping it ends them.
#[derive(Debug)]
pub struct Ssh {
    server: Server,
    host_key: String,
}

enum Server {
    Real(Sshd),
    Embedded(SshServer),
    Shared(Shared),
}

impl Ssh {
    /// Starts a server that `client` may log in to, on a host whose wrapper listens at `socket`. It answers when this returns.
    pub fn start(choice: &Choice, client: &ClientKey, socket: &Path) -> anyhow::Result<Ssh> {
        let embedded = match choice {
            Choice::Best if sshd::is_installed() => None,
            Choice::Best | Choice::Embedded => Some(SshServer::start(&[&client.public])?),
            Choice::Image { host_key } => {
                let sockets = HashMap::from([(USUAL_SOCKET.to_owned(), socket.to_owned())]);
                Some(SshServer::start_with(&[&client.public], Some(host_key), sockets)?)
            }
            Choice::Shared(shared) => {
                return Ok(Ssh { host_key: shared.host_key.clone(), server: Server::Shared(shared.clone()) });
            }
        };
        if let Some(server) = embedded {
            return Ok(Ssh { host_key: server.host_key().to_owned(), server: Server::Embedded(server) });
        }
        // Concurrent drains of many hosts are many connections to one host here.
        let server = Sshd::builder().authorized_line(&client.public).config("MaxStartups 200").start()?;
        let host_key = server.host_keys().into_iter().next().context("sshd has no host key")?;
        Ok(Ssh { server: Server::Real(server), host_key })
    }

    /// Ends the server and its sessions, and returns true. An embedded or shared server stays.
    pub fn stop(&mut self) -> bool {
        if let Server::Real(server) = &mut self.server {
            server.kill();
        }
        matches!(self.server, Server::Real(_))
    }

    /// Starts the server again at the same address with the same key.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        match &mut self.server {
            Server::Real(server) => server.restart(),
            Server::Embedded(_) | Server::Shared(_) => Ok(()),
        }
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        match &self.server {
            Server::Real(server) => server.address().to_string(),
            Server::Embedded(server) => server.address().to_string(),
            Server::Shared(shared) => shared.address.clone(),
        }
    }

    /// As in a `known_hosts` line after the name.
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// The SSH user; the embedded server accepts any user with the key.
    pub fn username(&self) -> String {
        sshd::username()
    }

    /// The name of the server for the log.
    pub fn kind(&self) -> &'static str {
        match &self.server {
            Server::Real(_) => "the system's sshd",
            Server::Embedded(_) => "the embedded one, which stands in for sshd",
            Server::Shared(shared) => shared.kind,
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Server::Real(_) => "Real",
            Server::Embedded(_) => "Embedded",
            Server::Shared(_) => "Shared",
        })
    }
}
