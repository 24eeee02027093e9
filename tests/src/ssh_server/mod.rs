//! An SSH server in this process, for machines without sshd: it accepts given keys, and forwards to TCP addresses and unix sockets.
//!
//! It supports the provider and `ssh -W`, and has no shell. It runs on separate threads and ends, with
//! all its sessions, when its value is dropped.

mod forward;
mod opens;

pub use opens::{ChannelKind, Opens};

use anyhow::Context as _;
use russh::{
    Channel, ChannelId, ChannelOpenFailure, MethodKind, MethodSet,
    keys::{Algorithm, PrivateKey, PublicKey, ssh_key::LineEnding},
    server::{self, Auth, ChannelOpenHandle, Msg, PublicKeyOffer, Session, VerifiedPublicKey},
};
use std::{collections::HashMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use tokio::{net::TcpListener, runtime::Runtime};

/// A key pair that is created without ssh-keygen.
#[derive(Clone)]
pub struct KeyPair {
    /// In OpenSSH's format.
    pub private: String,
    /// As in a `.pub` file, without a comment.
    pub public: String,
}

impl KeyPair {
    /// Creates an ed25519 key.
    pub fn generate() -> anyhow::Result<Self> {
        let key = random_key()?;
        let private = key.to_openssh(LineEnding::LF).context("write the private key")?.to_string();
        Ok(Self { private, public: key.public_key().to_openssh().context("write the public key")? })
    }
}

/// A running server.
pub struct SshServer {
    address: SocketAddr,
    host_key: String,
    runtime: Option<Runtime>,
}

impl SshServer {
    /// Starts a server on a free port of 127.0.0.1 that accepts these keys (lines of `authorized_keys` without
    /// options) for any user name.
    pub fn start(authorized: &[&str]) -> anyhow::Result<Self> {
        Self::start_with(authorized, None, HashMap::new())
    }

    /// Starts a server that opens channels to its client: after the first data for a socket, and in place of a connection to a TCP address.
    pub fn start_opening(authorized: &[&str], opens: &Arc<Opens>) -> anyhow::Result<Self> {
        Self::launch(authorized, None, HashMap::new(), Some(opens), None)
    }

    /// Starts a server that, after the key, sends a keyboard-interactive request with these prompts, and accepts any response.
    pub fn start_asking(authorized: &[&str], prompts: &[&'static str]) -> anyhow::Result<Self> {
        Self::launch(authorized, None, HashMap::new(), None, Some(prompts.to_vec()))
    }

    /// Starts a server with this host key (an OpenSSH private key; `None` creates one). It maps the paths of unix
    /// sockets: a request for a key of `sockets` is connected to its value.
    pub fn start_with(
        authorized: &[&str],
        host_key: Option<&str>,
        sockets: HashMap<String, PathBuf>,
    ) -> anyhow::Result<Self> {
        Self::launch(authorized, host_key, sockets, None, None)
    }

    fn launch(
        authorized: &[&str],
        host_key: Option<&str>,
        sockets: HashMap<String, PathBuf>,
        opens: Option<&Arc<Opens>>,
        prompts: Option<Vec<&'static str>>,
    ) -> anyhow::Result<Self> {
        let opens = opens.cloned();
        let sockets = Arc::new(sockets);
        let authorized = authorized
            .iter()
            .map(|line| PublicKey::from_openssh(line).with_context(|| format!("{line:?} is no public key")))
            .collect::<anyhow::Result<Arc<[PublicKey]>>>()?;
        let key = match host_key {
            Some(text) => PrivateKey::from_openssh(text).context("read the host key")?,
            None => random_key()?,
        };
        let host_key = key.public_key().to_openssh().context("write the host key")?;
        let config = Arc::new(server::Config {
            keys: vec![key],
            methods: match &prompts {
                Some(_) => [MethodKind::PublicKey, MethodKind::KeyboardInteractive].as_slice().into(),
                None => MethodSet::from([MethodKind::PublicKey].as_slice()),
            },
            auth_rejection_time: Duration::ZERO,
            nodelay: true,
            ..server::Config::default()
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ssh-server")
            .enable_all()
            .build()
            .context("start a runtime for the SSH server")?;
        // Not `block_on`: the caller may be in a runtime.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("listen for SSH")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener)?
        };
        runtime.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let config = Arc::clone(&config);
                        let handler = Handler {
                            authorized: Arc::clone(&authorized),
                            sockets: Arc::clone(&sockets),
                            opens: opens.clone(),
                            prompts: prompts.clone(),
                            unanswered: Vec::new(),
                        };
                        tokio::spawn(async move {
                            if stream.set_nodelay(true).is_err() {
                                return; // gone again
                            }
                            let session = server::run_stream(config, stream, handler).await;
                            if let Err(error) = async { session?.await }.await {
                                tracing::debug!(%error, "an SSH session ended");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "an SSH connection was not accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(Self { address, host_key, runtime: Some(runtime) })
    }

    /// The listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its public host key, as in a `.pub` file.
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// Its line for a known_hosts file.
    pub fn known_hosts(&self) -> String {
        format!("[{}]:{} {}\n", self.address.ip(), self.address.port(), self.host_key)
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Handler {
    authorized: Arc<[PublicKey]>,
    sockets: Arc<HashMap<String, PathBuf>>,
    /// The channels to open, until they were started.
    opens: Option<Arc<Opens>>,
    unanswered: Vec<ChannelOpenHandle>,
    /// Of the second factor.
    prompts: Option<Vec<&'static str>>,
}

impl Handler {
    fn judge(&self, key: &PublicKey) -> Auth {
        // Without the comment of the key.
        if self.authorized.iter().any(|it| it.key_data() == key.key_data()) {
            Auth::Accept
        } else {
            Auth::reject()
        }
    }
}

impl server::Handler for Handler {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        _: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(self.judge(offer.public_key))
    }

    async fn auth_publickey(&mut self, _: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let judged = self.judge(key.public_key);
        if judged != Auth::Accept || self.prompts.is_none() {
            return Ok(judged);
        }
        let further = MethodSet::from([MethodKind::KeyboardInteractive].as_slice());
        Ok(Auth::Reject { proceed_with_methods: Some(further), partial_success: true })
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        _: &str,
        _: &str,
        response: Option<server::Response<'a>>,
    ) -> Result<Auth, russh::Error> {
        Ok(match (&self.prompts, response) {
            (Some(prompts), None) => Auth::Partial {
                name: "".into(),
                instructions: "Access is logged.".into(),
                prompts: prompts.iter().map(|prompt| ((*prompt).into(), false)).collect::<Vec<_>>().into(),
            },
            (Some(_), Some(_)) => Auth::Accept,
            (None, _) => Auth::reject(),
        })
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if let Some(opens) = self.opens.take() {
            self.unanswered.push(reply);
            opens.start(&session.handle());
            return Ok(());
        }
        match u16::try_from(port) {
            Ok(port) => forward::to_tcp(channel, reply, host.to_owned(), port),
            Err(_) => reply.reject(ChannelOpenFailure::ConnectFailed).await,
        }
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        let path = self.sockets.get(path).cloned().unwrap_or_else(|| path.into());
        forward::to_unix(channel, reply, path);
        Ok(())
    }

    async fn data(&mut self, _: ChannelId, _: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        if let Some(opens) = self.opens.take() {
            opens.start(&session.handle());
        }
        Ok(())
    }
}

fn random_key() -> anyhow::Result<PrivateKey> {
    PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).context("make a key")
}
