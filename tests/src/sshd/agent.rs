//! A real ssh-agent.

use super::ClientKey;
use anyhow::{Context as _, bail, ensure};
use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A running agent. Dropping it ends it.
#[derive(Debug)]
pub struct Agent {
    socket: PathBuf,
    child: Child,
}

impl Agent {
    /// Starts an agent without keys, with its socket in this directory.
    pub fn start(dir: &Path) -> anyhow::Result<Self> {
        let socket = dir.join("agent.sock");
        let mut child = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(&socket)
            .env("SSH_ASKPASS", "/bin/false")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("start ssh-agent")?;
        let start = Instant::now();
        // The socket exists before the agent listens on it.
        while UnixStream::connect(&socket).is_err() {
            if let Some(status) = child.try_wait()? {
                bail!("ssh-agent ended with {status}");
            }
            ensure!(start.elapsed() < Duration::from_secs(30), "ssh-agent does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { socket, child })
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Adds a key without a passphrase, and the certificate beside it if there is one.
    pub fn add(&self, key: &ClientKey) -> anyhow::Result<()> {
        self.run(key, &["-q"])
    }

    /// Adds a key that the agent does not use without a confirmation. Nobody can confirm.
    pub fn add_unconfirmed(&self, key: &ClientKey) -> anyhow::Result<()> {
        self.run(key, &["-q", "-c"])
    }

    fn run(&self, key: &ClientKey, flags: &[&str]) -> anyhow::Result<()> {
        let output =
            Command::new("ssh-add").args(flags).arg(&key.path).env("SSH_AUTH_SOCK", &self.socket).output()?;
        ensure!(output.status.success(), "ssh-add: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
