//! A provider's process without Terraform: started as go-plugin does, or manually.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

/// go-plugin's cookie for Terraform providers.
const COOKIE: (&str, &str) =
    ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2");

/// A running provider. Dropping it kills the process.
#[derive(Debug)]
pub struct Plugin {
    child: Child,
    pub handshake: Handshake,
}

/// The line that a provider prints when it is ready.
#[derive(Debug, Clone)]
pub struct Handshake {
    pub socket: PathBuf,
    /// The provider's certificate, as DER; `None` without TLS.
    pub certificate: Option<Vec<u8>>,
}

impl Plugin {
    /// Starts a provider as Terraform does, with `client_certificate` (PEM) as the required certificate, and with sockets in `folder`.
    ///
    /// # Errors
    ///
    /// If the provider does not print a handshake.
    pub fn start(program: &Path, folder: &Path, client_certificate: Option<&str>) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.env_clear().env(COOKIE.0, COOKIE.1).env("PLUGIN_PROTOCOL_VERSIONS", "5,6");
        command.env("PLUGIN_UNIX_SOCKET_DIR", folder);
        if let Some(certificate) = client_certificate {
            command.env("PLUGIN_CLIENT_CERT", certificate);
        }
        Self::spawn(command)
    }

    /// Starts any command that becomes a provider.
    ///
    /// # Errors
    ///
    /// If it does not print a handshake.
    pub fn spawn(mut command: Command) -> anyhow::Result<Self> {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("starting a provider")?;
        let stdout = child.stdout.take().context("the provider has no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("reading the handshake")?;
        let handshake = Handshake::parse(line.trim_end());
        if handshake.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        Ok(Self { handshake: handshake?, child })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the process has ended.
    ///
    /// # Errors
    ///
    /// If the status cannot be read.
    pub fn exit_code(&mut self) -> anyhow::Result<Option<Option<i32>>> {
        Ok(self.child.try_wait()?.map(|status| status.code()))
    }

    /// Its stderr, after its exit. Stderr must be a pipe.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn into_stderr(mut self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.child.stderr.take().context("stderr is not a pipe")?.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Both fail if it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Handshake {
    fn parse(line: &str) -> anyhow::Result<Self> {
        let fields: Vec<&str> = line.split('|').collect();
        let ["1", "6", "unix", socket, "grpc", certificate] = fields[..] else {
            bail!("not a handshake: {line:?}");
        };
        let certificate = match certificate {
            "" => None,
            base64 => Some(STANDARD_NO_PAD.decode(base64).context("decoding the certificate")?),
        };
        Ok(Self { socket: socket.into(), certificate })
    }
}
