//! The SSH server of a host: the system's sshd, as its only user the one who runs the test.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use russh::keys::{Algorithm, PrivateKey, key::safe_rng, ssh_key::LineEnding};

use super::init::Init;
use crate::terraform;

/// Not 22, which only root may bind.
const PORT: u16 = 2222;
/// How long sshd may take to listen, on a busy machine.
const START: Duration = Duration::from_secs(20);

/// The key that logs in to every host of a lab.
#[derive(Debug, Clone)]
pub struct ClientKey {
    /// The private key, an OpenSSH file without a passphrase.
    pub path: PathBuf,
    /// The line for `authorized_keys`.
    pub public: String,
}

impl ClientKey {
    /// Makes a new Ed25519 key below `folder`.
    pub fn make(folder: &Path) -> anyhow::Result<ClientKey> {
        let path = folder.join("id_ed25519");
        let public = make_key(&path)?;
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
    address: SocketAddr,
    host_key: String,
    username: String,
    kind: String,
    _init: Init,
}

impl Ssh {
    /// Starts a server on `ip`, with a host key of its own, that `client` may log in to. It answers when this returns.
    pub fn start(ip: Ipv4Addr, folder: &Path, client: &ClientKey) -> anyhow::Result<Ssh> {
        let program = sshd()?;
        let address = SocketAddr::from((ip, PORT));
        let folder = folder.join("ssh");
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("create {}", folder.display()))?;
        let host_key = make_key(&folder.join("host_key"))?;
        fs::write(folder.join("authorized_keys"), format!("{}\n", client.public))
            .context("write authorized_keys")?;
        fs::write(folder.join("sshd_config"), configuration(address, &folder))
            .context("write sshd_config")?;
        privilege_separation_folder()?;
        let command = [
            program.clone().into_os_string(),
            "-D".into(),
            "-E".into(),
            folder.join("log").into(),
            "-f".into(),
            folder.join("sshd_config").into(),
        ];
        let init = Init::start(&command, &folder, |_| {})?;
        let ssh = Ssh {
            address,
            host_key,
            username: username()?,
            kind: program.display().to_string(),
            _init: init,
        };
        ssh.wait_listening(&folder)?;
        Ok(ssh)
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// As in a `known_hosts` line after the name.
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// Who logs in.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// What runs.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn wait_listening(&self, folder: &Path) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            match TcpStream::connect_timeout(&self.address, Duration::from_secs(1)) {
                Ok(_) => return Ok(()),
                Err(error) if start.elapsed() > START => {
                    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                    bail!("sshd does not listen on {}: {error}; its log:\n{log}", self.address);
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn sshd() -> anyhow::Result<PathBuf> {
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd"].map(PathBuf::from);
    // It insists on being called by an absolute path.
    places
        .into_iter()
        .find(|path| path.is_file())
        .or_else(|| terraform::on_path("sshd"))
        .context("sshd is not installed: `cargo xtask test` installs openssh-server where it may")
}

fn configuration(address: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "ListenAddress {address}\n\
         HostKey {folder}/host_key\n\
         AuthorizedKeysFile {folder}/authorized_keys\n\
         PidFile none\n\
         # Folders of tests are below /tmp, which everybody may write to.\n\
         StrictModes no\n\
         UsePAM no\n\
         PermitRootLogin prohibit-password\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         MaxStartups 200\n\
         LogLevel VERBOSE\n"
    )
}

/// Makes an Ed25519 key for `path`, readable by its owner alone; returns the public half as a line without a comment.
fn make_key(path: &Path) -> anyhow::Result<String> {
    use std::io::Write;
    let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).context("make a key")?;
    let pem = key.to_openssh(LineEnding::LF).context("encode a key")?;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("create {}", path.display()))?;
    file.write_all(pem.as_bytes()).with_context(|| format!("write {}", path.display()))?;
    key.public_key().to_openssh().context("encode a public key")
}

/// sshd of root wants this folder to exist, and in a container nobody made it.
fn privilege_separation_folder() -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create("/run/sshd")
            .context("create /run/sshd, which sshd insists on")?;
    }
    Ok(())
}

/// The name of the user who runs us.
fn username() -> anyhow::Result<String> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&uid.as_str()))
        .and_then(|fields| fields.first().map(|name| (*name).to_owned()))
        .or_else(|| std::env::var("USER").ok())
        .with_context(|| format!("user {uid} has no name"))
}
