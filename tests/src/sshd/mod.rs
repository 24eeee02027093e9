//! The real sshd on a free port, with keys created for the run, as root or as an ordinary user.
//!
//! Each server has its own directory, address in 127.0.0.0/8 and log. Dropping it ends it with all sessions. It accepts the
//! user who runs the test, with the keys of the builder.

mod agent;
mod keys;
pub mod tree;

pub use agent::Agent;
pub use keys::{ClientKey, public_line};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const PROGRAM: &str = "/usr/sbin/sshd";
const START_LIMIT: Duration = Duration::from_secs(30);

/// Whether sshd is installed.
pub fn is_installed() -> bool {
    Path::new(PROGRAM).is_file()
}

/// The settings of a server. See [`Sshd::builder`].
#[derive(Debug, Clone)]
pub struct Builder {
    host_keys: Vec<String>,
    authorized: Vec<String>,
    config: Vec<String>,
    open: bool,
}

impl Builder {
    /// Makes the server's directory readable for every user, for logins of other users.
    pub fn open_to_all(mut self) -> Self {
        self.open = true;
        self
    }

    /// The types of the host keys, as ssh-keygen names them. Default: `ed25519`.
    pub fn host_keys(mut self, types: &[&str]) -> Self {
        self.host_keys = types.iter().map(|it| (*it).to_owned()).collect();
        self
    }

    /// Adds an authorized key.
    pub fn authorize(self, key: &ClientKey) -> Self {
        let line = key.public.clone();
        self.authorized_line(line)
    }

    /// Adds a line to `authorized_keys` as it is, options included.
    pub fn authorized_line(mut self, line: impl Into<String>) -> Self {
        self.authorized.push(line.into());
        self
    }

    /// Adds a line to `sshd_config`. It comes first, and sshd uses the first value.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// Starts the server and waits until it listens.
    pub fn start(self) -> anyhow::Result<Sshd> {
        ensure!(is_installed(), "{PROGRAM} is not there: install openssh-server");
        let dir = tempfile::Builder::new().prefix("sshd-").tempdir().context("make a folder for sshd")?;
        if self.open {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        }
        let mut host_keys = Vec::new();
        for kind in &self.host_keys {
            let path = dir.path().join(format!("host_{kind}"));
            keys::generate(&path, kind, "")?;
            host_keys.push(path);
        }
        fs::write(dir.path().join("authorized_keys"), self.authorized.join("\n") + "\n")?;
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").context("make sshd's folder for privilege separation")?;
        }
        // A port that was just free may be in use when sshd binds it.
        let mut last = None;
        for _ in 0..5 {
            match Sshd::launch(&self, dir.path(), &host_keys) {
                Ok((child, address)) => return Ok(Sshd { dir, address, host_keys, child, builder: self }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("sshd was not started")))
    }
}

/// A running sshd.
#[derive(Debug)]
pub struct Sshd {
    dir: TempDir,
    address: SocketAddr,
    host_keys: Vec<PathBuf>,
    child: Child,
    builder: Builder,
}

impl Sshd {
    /// A server with one ed25519 host key and no authorized key.
    pub fn builder() -> Builder {
        Builder {
            host_keys: vec!["ed25519".to_owned()],
            authorized: Vec::new(),
            config: Vec::new(),
            open: false,
        }
    }

    /// The listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The accepted user: the one who runs the test.
    pub fn username(&self) -> String {
        username()
    }

    /// Its directory, for sockets and other files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its public host keys, as in a `.pub` file, without comments.
    pub fn host_keys(&self) -> Vec<String> {
        self.host_keys.iter().filter_map(|path| public_line(path).ok()).collect()
    }

    /// Makes the server present its first host key in a certificate for these principals, signed by an authority. Applies to sessions
    /// that begin afterwards.
    pub fn certify(&self, authority: &ClientKey, options: &[&str]) -> anyhow::Result<()> {
        let path = self.host_keys.first().context("the server has no host key")?;
        let all = [&["-h", "-I", "test-host"], options].concat();
        ClientKey::read(path)?.sign(authority, &all)?;
        // sshd reads its keys again on SIGHUP, which restarts it.
        let config = self.dir.path().join("sshd_config");
        let text = fs::read_to_string(&config)?;
        fs::write(&config, format!("HostCertificate {}-cert.pub\n{text}", path.display()))?;
        let before = self.log().matches("Server listening").count();
        signal(self.processes().get(..1).unwrap_or_default(), Signal::HUP);
        crate::poll::until("sshd restarts with its certificate", START_LIMIT, || {
            if self.log().matches("Server listening").count() > before { Ok(()) } else { Err(self.log()) }
        });
        Ok(())
    }

    /// Its lines for a known_hosts file.
    pub fn known_hosts(&self) -> String {
        let name = format!("[{}]:{}", self.address.ip(), self.address.port());
        self.host_keys().iter().fold(String::new(), |all, key| all + &name + " " + key + "\n")
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The listening process, whose descendants are the sessions.
    pub fn listener(&self) -> u32 {
        self.child.id()
    }

    /// Its listener and all processes of its sessions, the listener first.
    pub fn processes(&self) -> Vec<Pid> {
        Pid::from_raw(self.child.id().cast_signed()).map(tree::with_descendants).unwrap_or_default()
    }

    /// Stops the listener and all sessions with SIGSTOP, as a hung host.
    pub fn freeze(&self) {
        signal(&self.processes(), Signal::STOP);
    }

    /// Continues them.
    pub fn thaw(&self) {
        signal(&self.processes(), Signal::CONT);
    }

    /// Kills the sessions and leaves the listener.
    pub fn kill_sessions(&self) {
        signal(self.processes().get(1..).unwrap_or_default(), Signal::KILL);
    }

    /// Kills the listener and all sessions, as a power failure does.
    pub fn kill(&mut self) {
        // Another process may have the PID of one that was killed earlier.
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(&self.processes(), Signal::KILL);
            let _ = self.child.wait();
        }
    }

    /// Starts it again after [`Self::kill`], on the same address with the same keys.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        let (builder, dir) = (self.builder.clone(), self.dir.path());
        self.child = Self::launch_at(&builder, dir, &self.host_keys, self.address)?;
        Ok(())
    }

    fn launch(builder: &Builder, dir: &Path, host_keys: &[PathBuf]) -> anyhow::Result<(Child, SocketAddr)> {
        let address = free_address()?;
        Ok((Self::launch_at(builder, dir, host_keys, address)?, address))
    }

    fn launch_at(
        builder: &Builder,
        dir: &Path,
        host_keys: &[PathBuf],
        address: SocketAddr,
    ) -> anyhow::Result<Child> {
        let config = dir.join("sshd_config");
        fs::write(&config, config_text(builder, dir, host_keys, address))?;
        let log = fs::File::options().create(true).append(true).open(dir.join("log"))?;
        let before = log.metadata()?.len();
        let mut command = Command::new(PROGRAM);
        let mut child = command
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start sshd")?;
        let start = Instant::now();
        loop {
            let log = fs::read(dir.join("log"))?;
            let fresh = String::from_utf8_lossy(log.get(before as usize..).unwrap_or_default()).into_owned();
            if fresh.contains("Server listening on") {
                return Ok(child);
            }
            if let Some(status) = child.try_wait()? {
                bail!("sshd ended with {status}: {fresh}");
            }
            if start.elapsed() > START_LIMIT {
                let _ = child.kill();
                let _ = child.wait();
                bail!("sshd does not listen after {START_LIMIT:?}: {fresh}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The name of the user who runs the test.
pub fn username() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| "root".to_owned())
}

/// The message without the sentence that only root gets.
pub fn without_advice_for_root(message: &str) -> String {
    let end = "`ec2-user`.";
    match message.split_once(" Cloud images ").zip(message.split_once(end)) {
        Some(((before, _), (_, after))) => format!("{before}{after}"),
        None => message.to_owned(),
    }
}

/// A loopback address without a listener; parallel tests get different ones.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high | 1, low, (count % 250 + 2) as u8);
    let listener = TcpListener::bind((IpAddr::from(ip), 0)).context("find a free port")?;
    Ok(listener.local_addr()?)
}

fn config_text(builder: &Builder, dir: &Path, host_keys: &[PathBuf], address: SocketAddr) -> String {
    let mut lines = builder.config.clone();
    lines.push(format!("ListenAddress {address}"));
    lines.extend(host_keys.iter().map(|path| format!("HostKey {}", path.display())));
    lines.push(format!("AuthorizedKeysFile {}", dir.join("authorized_keys").display()));
    lines.extend(
        [
            "PidFile none",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "LogLevel VERBOSE",
            "PrintMotd no",
        ]
        .map(str::to_owned),
    );
    lines.join("\n") + "\n"
}

fn signal(processes: &[Pid], signal: Signal) {
    for pid in processes {
        // A process may have ended in between.
        let _ = rustix::process::kill_process(*pid, signal);
    }
}
