//! The environment of the connection benchmarks: an sshd on loopback, and the real wrapper on a unix socket and a TCP port.

use std::{
    fs::File,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::provider_client::{JumpOptions, SshOptions, Target, TrustOptions};
use anyhow::{Context, bail, ensure};
use grit_proto::runner_wrapper::{CheckStatusRequest, process_wrapper_client::ProcessWrapperClient};
use grit_provider::testing::transport::{HostPort, Secret};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

use crate::{
    lab::host::procs,
    sshd::{self, ClientKey, Sshd},
    terraform,
};

/// Limit for operations that normally finish immediately.
const LIMIT: Duration = Duration::from_secs(60);

/// An sshd with a wrapper, and an authorized key.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) dir: TempDir,
    pub(super) key: ClientKey,
    pub(super) sshd: Sshd,
    pub(super) wrapper: Wrapper,
    /// Further wrappers, for more managers than one wrapper accepts connections.
    pub(super) others: Vec<Wrapper>,
}

impl Site {
    /// Starts with these lines in `sshd_config`.
    pub(super) fn new(config: &[&str]) -> anyhow::Result<Site> {
        let dir = tempfile::Builder::new().prefix("bench-").tempdir().context("make a folder")?;
        let key = ClientKey::generate(dir.path(), "client", "ed25519", "")?;
        let builder = Sshd::builder().authorize(&key);
        let sshd = config.iter().fold(builder, |builder, line| builder.config(*line)).start()?;
        let wrapper = Wrapper::start(dir.path())?;
        Ok(Site { dir, key, sshd, wrapper, others: Vec::new() })
    }

    /// Adds four wrappers: each accepts 48 connections.
    pub(super) fn for_a_crowd(config: &[&str]) -> anyhow::Result<Site> {
        let mut site = Site::new(config)?;
        for number in 0..4 {
            let folder = site.dir.path().join(format!("wrapper-{number}"));
            std::fs::create_dir(&folder).context("make a folder")?;
            site.others.push(Wrapper::start(&folder)?);
        }
        Ok(site)
    }

    /// All wrappers.
    pub(super) fn wrappers(&self) -> impl Iterator<Item = &Wrapper> {
        [&self.wrapper].into_iter().chain(&self.others)
    }

    /// The manager at this site. Entries with different numbers have the same host key with different comments, so that they do not share a
    /// session, like managers on different hosts.
    pub(super) fn target(&self, number: usize, wrapper_address: &str) -> anyhow::Result<Target> {
        let host_key = self.sshd.host_keys().into_iter().next().context("sshd has no host key")?;
        Ok(Target {
            manager: format!("mgr-{number}"),
            instance_name: format!("runner-manager-{number}"),
            instance_id: None,
            address: address_of(&self.sshd)?,
            wrapper_address: wrapper_address.parse()?,
            username: None,
            private_key: None,
            host_key: Some(format!("{host_key} number-{number}")),
        })
    }

    /// The settings of the provider block.
    pub(super) fn options(&self) -> SshOptions {
        SshOptions {
            username: Some(self.sshd.username()),
            private_key: Some(Secret::new(self.key.private.clone())),
            trust: TrustOptions { known_hosts: Some(self.sshd.known_hosts()), ..TrustOptions::default() },
            ..SshOptions::default()
        }
    }

    /// A server as a jump host; it must accept this site's key.
    pub(super) fn hop(&self, server: &Sshd) -> anyhow::Result<JumpOptions> {
        Ok(JumpOptions {
            address: address_of(server)?,
            username: Some(server.username()),
            private_key: Some(Secret::new(self.key.private.clone())),
            private_key_path: None,
            passphrase: None,
            certificate_path: None,
            host_key: server.host_keys().into_iter().next(),
        })
    }

    /// OpenSSH's client, logged in to a server that accepts this site's key.
    pub(super) fn ssh(&self, server: &Sshd, options: &[&str]) -> anyhow::Result<Vec<String>> {
        let address = server.address();
        let known = self.dir.path().join(format!("known_hosts-{}", address.port()));
        std::fs::write(&known, server.known_hosts()).context("write known_hosts")?;
        let mut arguments: Vec<String> =
            ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]
                .map(str::to_owned)
                .to_vec();
        arguments.extend(["-o".to_owned(), format!("UserKnownHostsFile={}", known.display())]);
        arguments.extend(["-i".to_owned(), self.key.path.display().to_string()]);
        arguments.extend(["-p".to_owned(), address.port().to_string()]);
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        arguments.push(format!("{}@{}", server.username(), address.ip()));
        Ok(arguments)
    }
}

fn address_of(server: &Sshd) -> anyhow::Result<HostPort> {
    Ok(server.address().to_string().parse()?)
}

/// Waits until a server has no session left, so that the end of one sample does not affect the next.
pub(super) fn settle(server: &Sshd) -> anyhow::Result<()> {
    let start = Instant::now();
    while server.processes().len() > 1 {
        ensure!(start.elapsed() < LIMIT, "sessions of sshd do not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The real wrapper. Dropping it ends the wrapper and its runner.
#[derive(Debug)]
pub(super) struct Wrapper {
    child: Child,
    pub(super) socket: PathBuf,
    pub(super) tcp: SocketAddr,
}

impl Wrapper {
    /// Starts a wrapper around `sleep`, and waits until it responds.
    pub(super) fn start(folder: &Path) -> anyhow::Result<Wrapper> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let wrapper = Wrapper::spawn(folder, &[], &["sleep", "infinity"])?;
        runtime.block_on(wrapper.answers())?;
        Ok(wrapper)
    }

    /// Starts a wrapper with further options, without waiting for a response.
    pub(super) fn spawn(folder: &Path, options: &[&str], command: &[&str]) -> anyhow::Result<Wrapper> {
        let (socket, tcp) = (folder.join("wrapper.sock"), sshd::free_address()?);
        let log = File::create(folder.join("wrapper.log")).context("make the wrapper's log")?;
        let child = Command::new(terraform::built("grit-wrapper")?)
            .arg("run")
            .args(["--log-level", "error"])
            .args(["--grpc-listen", &format!("unix://{}", socket.display())])
            .args(["--grpc-listen", &format!("tcp://{tcp}")])
            .args(options)
            .arg("--")
            .args(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is for the benchmark, which then ends the wrapper.
            .process_group(0)
            .spawn()
            .context("start grit-wrapper")?;
        Ok(Wrapper { child, socket, tcp })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// As a manager's `wrapper_address`.
    pub(super) fn unix_address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// As a manager's `wrapper_address`.
    pub(super) fn tcp_address(&self) -> String {
        format!("tcp://{}", self.tcp)
    }

    /// Waits for the first response.
    pub(super) async fn answers(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            match first_answer(&self.socket).await {
                Ok(()) => return Ok(()),
                Err(error) if start.elapsed() > LIMIT => bail!("the wrapper does not answer: {error:#}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}

impl Drop for Wrapper {
    fn drop(&mut self) {
        let below = procs::descendants(self.child.id());
        // The wrapper ends first: otherwise it would report the runner's exit, and could start another one.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in below.iter().filter_map(|process| Pid::from_raw(process.pid.cast_signed())) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// A connection to a unix socket without SSH, and the response of one call.
pub(super) async fn first_answer(socket: &Path) -> anyhow::Result<()> {
    ProcessWrapperClient::new(channel(socket).await?).check_status(CheckStatusRequest {}).await?;
    Ok(())
}

/// A connection to a unix socket without SSH.
pub(super) async fn channel(socket: &Path) -> anyhow::Result<Channel> {
    let stream = UnixStream::connect(socket).await?;
    let once = std::sync::Mutex::new(Some(TokioIo::new(stream)));
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let stream = once.lock().ok().and_then(|mut once| once.take());
        async move { stream.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected)) }
    });
    Ok(Endpoint::from_static("http://localhost").connect_with_connector(connector).await?)
}
