//! Keys created by ssh-keygen.

use anyhow::{Context, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A key pair of a client.
#[derive(Debug, Clone)]
pub struct ClientKey {
    /// The file of the private key.
    pub path: PathBuf,
    /// The text of that file.
    pub private: String,
    /// The public key: type and blob.
    pub public: String,
    /// As `SHA256:…`.
    pub fingerprint: String,
}

impl ClientKey {
    /// Creates a key of a type of ssh-keygen (`ed25519`, `ecdsa`, `rsa`), encrypted unless the passphrase is empty.
    pub fn generate(dir: &Path, name: &str, kind: &str, passphrase: &str) -> anyhow::Result<Self> {
        let path = dir.join(name);
        generate(&path, kind, passphrase)?;
        Self::read(&path)
    }

    /// Reads an existing key with its `.pub` file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let listed = keygen(&["-l", "-f", &path.with_extension_added("pub")])?;
        let fingerprint =
            listed.split_whitespace().nth(1).context("ssh-keygen -l printed nothing")?.to_owned();
        Ok(Self {
            private: fs::read_to_string(path)?,
            public: public_line(path)?,
            path: path.to_owned(),
            fingerprint,
        })
    }

    /// Signs this key as a user key or, with `-h` among the options, as a host key. Returns the path of the certificate.
    pub fn sign(&self, authority: &ClientKey, options: &[&str]) -> anyhow::Result<PathBuf> {
        let ca = authority.path.display().to_string();
        let public = self.path.with_extension_added("pub");
        let mut args = vec!["-q", "-s", ca.as_str()];
        args.extend(options);
        args.push(&public);
        keygen(&args)?;
        Ok(PathBuf::from(self.path.with_extension_added("x").replace(".x", "-cert.pub")))
    }
}

/// The public key beside a private one: type and blob, without the comment.
pub fn public_line(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path.with_extension_added("pub"))?;
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

/// Creates a key pair.
pub(super) fn generate(path: &Path, kind: &str, passphrase: &str) -> anyhow::Result<()> {
    let path = path.display().to_string();
    let mut args = vec!["-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", &path];
    if kind == "rsa" {
        args.extend(["-b", "2048"]); // half the time, and enough for a test
    }
    keygen(&args).map(drop)
}

fn keygen(args: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new("ssh-keygen").args(args).stdin(Stdio::null()).output().context("run ssh-keygen")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ssh-keygen {args:?}: {}: {stderr}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

trait Extended {
    fn with_extension_added(&self, extension: &str) -> String;
}

impl Extended for Path {
    fn with_extension_added(&self, extension: &str) -> String {
        format!("{}.{extension}", self.display())
    }
}
