//! A host: stands in for a VM with a runner manager on it.
//!
//! Real on it: an SSH server ([`ssh`] says which), the `grit-wrapper` program on a unix socket of its own, and in it the runner
//! stand-in. All of it runs below one `lab-init`, the host's first process, which adopts orphans; so terminating the host, like
//! destroying a VM, ends everything on it at once, with SIGKILL, whatever became of its parents. The SSH server stands
//! beside it and goes at the same time. Jobs that were running are lost, and counted.

pub mod init;
pub mod procs;
pub mod ssh;

use std::{
    ffi::OsString,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use self::{
    init::Init,
    procs::Process,
    ssh::{ClientKey, Ssh},
};
use super::{
    event::{EventLog, What},
    queue::Queue,
};
use crate::terraform;

/// The program names in the process tree.
const RUNNER: &str = "runner-stand-in";
const WRAPPER: &str = "grit-wrapper";
/// The wrapper's socket, in the host's folder.
const SOCKET: &str = "wrapper.sock";

/// What a host is to be like. The default is a well-behaved one.
#[derive(Debug, Clone)]
pub struct HostSpec {
    /// The version that the runner claims to be, and behaves as.
    pub runner_version: String,
    /// Jobs at once.
    pub concurrent: usize,
    /// How long the runner waits for its jobs in a forceful shutdown; `None` is its default.
    pub shutdown_timeout: Option<Duration>,
    /// The tokens of the `[[runners]]` sections; `None` is one section with a token named after the instance.
    pub tokens: Option<Vec<String>>,
    /// Whether there is a configuration file at all.
    pub configured: bool,
    /// Whether the runner listens for `/metrics` and so on.
    pub listen: bool,
    /// From the creation until the wrapper starts. SSH is there at once.
    pub boot_takes: Duration,
    /// Options for `runner-stand-in run`, such as `--start-delay`.
    pub runner_options: Vec<String>,
    /// Options for `grit-wrapper run`.
    pub wrapper_options: Vec<String>,
    /// Where the wrapper's program is; `None` is the one that was built here.
    pub wrapper_program: Option<PathBuf>,
    pub ssh: ssh::Choice,
}

impl Default for HostSpec {
    fn default() -> HostSpec {
        HostSpec {
            runner_version: "19.2.0".to_owned(),
            concurrent: 4,
            shutdown_timeout: None,
            tokens: None,
            configured: true,
            listen: true,
            boot_takes: Duration::ZERO,
            runner_options: Vec::new(),
            wrapper_options: Vec::new(),
            wrapper_program: None,
            ssh: ssh::Choice::default(),
        }
    }
}

impl HostSpec {
    /// A well-behaved host with this version of the runner.
    pub fn version(runner_version: &str) -> HostSpec {
        HostSpec { runner_version: runner_version.to_owned(), ..HostSpec::default() }
    }

    /// Adds options for `runner-stand-in run`.
    pub fn runner(mut self, options: &[&str]) -> HostSpec {
        self.runner_options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Adds options for `grit-wrapper run`.
    pub fn wrapper(mut self, options: &[&str]) -> HostSpec {
        self.wrapper_options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }
}

/// A running host. Clones are handles to the same one; it is terminated when the last is dropped.
#[derive(Debug, Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    instance_name: String,
    runner_version: String,
    folder: PathBuf,
    ip: Ipv4Addr,
    events: EventLog,
    queue: Queue,
    machine: Mutex<Machine>,
    address: String,
    username: String,
    host_key: String,
}

/// What is switched off by terminating.
#[derive(Debug, Default)]
struct Machine {
    ssh: Option<Ssh>,
    init: Option<Init>,
    /// What its first process starts, once it was powered on.
    command: Vec<OsString>,
    terminated: bool,
}

impl Host {
    /// Boots a host: SSH answers when this returns, the wrapper starts after `boot_takes`, in the background.
    ///
    /// `instance_name` must be unique in the lab: it is the subject of the host's events and the system id of its runner.
    pub fn boot(
        instance_name: &str,
        spec: &HostSpec,
        folder: &Path,
        events: &EventLog,
        queue: &Queue,
        client: &ClientKey,
    ) -> anyhow::Result<Host> {
        let folder = folder.to_owned();
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let ssh = Ssh::start(&spec.ssh, client, &folder.join(SOCKET))?;
        let host = Host {
            shared: Arc::new(Shared {
                instance_name: instance_name.to_owned(),
                runner_version: spec.runner_version.clone(),
                events: events.clone(),
                queue: queue.clone(),
                address: ssh.address(),
                username: ssh.username(),
                host_key: ssh.host_key().to_owned(),
                folder,
                ip: own_address(),
                machine: Mutex::default(),
            }),
        };
        let kind = ssh.kind().to_owned();
        host.shared.machine().ssh = Some(ssh);
        let command = host.shared.command(spec)?;
        host.shared.configure(spec)?;
        if spec.boot_takes.is_zero() {
            host.shared.power_on(&command, kind)?;
        } else {
            let takes = spec.boot_takes;
            let shared = Arc::downgrade(&host.shared);
            std::thread::spawn(move || {
                std::thread::sleep(takes);
                let Some(shared) = shared.upgrade() else { return };
                if let Err(error) = shared.power_on(&command, kind) {
                    shared.events.note(&shared.instance_name, format!("the boot failed: {error:#}"));
                }
            });
        }
        Ok(host)
    }

    /// The name in the event log, and the runner's system id.
    pub fn instance_name(&self) -> &str {
        &self.shared.instance_name
    }

    /// The runner's version, as it was asked for.
    pub fn runner_version(&self) -> &str {
        &self.shared.runner_version
    }

    /// `host:port` of the SSH server.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Who logs in.
    pub fn username(&self) -> &str {
        &self.shared.username
    }

    /// The host's public key, as in a `known_hosts` line after the name: `ssh-ed25519 AAAA…`.
    pub fn host_key(&self) -> &str {
        &self.shared.host_key
    }

    /// Where the wrapper listens: `unix:///…`.
    pub fn wrapper_address(&self) -> String {
        format!("unix://{}", self.shared.socket().display())
    }

    /// The URL of the runner's own endpoints; nobody answers there unless the host was specified to `listen`.
    pub fn runner_url(&self) -> String {
        format!("http://{}:9252", self.shared.ip)
    }

    /// The wrapper's socket.
    pub fn wrapper_socket(&self) -> PathBuf {
        self.shared.socket()
    }

    /// The host's disk.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// The processes of the host, those of the SSH server aside.
    pub fn processes(&self) -> Vec<Process> {
        self.shared.processes()
    }

    /// The pid of the runner, `None` when none runs.
    pub fn runner_pid(&self) -> Option<u32> {
        self.shared.pid_of(RUNNER)
    }

    /// The pid of the wrapper, `None` when none runs.
    pub fn wrapper_pid(&self) -> Option<u32> {
        self.shared.pid_of(WRAPPER)
    }

    /// Sends the runner a signal behind the wrapper's back.
    pub fn signal_runner(&self, signal: Signal) -> anyhow::Result<()> {
        kill(self.runner_pid().context("no runner runs")?, signal)
    }

    /// Sends the wrapper a signal; SIGKILL is its crash.
    pub fn signal_wrapper(&self, signal: Signal) -> anyhow::Result<()> {
        kill(self.wrapper_pid().context("no wrapper runs")?, signal)
    }

    /// Starts the wrapper again with the same command, as systemd would.
    pub fn start_wrapper(&self) -> anyhow::Result<()> {
        self.shared.machine().init.as_mut().context("the host is not up")?.start_again()
    }

    /// Ends the SSH server and its sessions: the host can no longer be reached, and everything else on it goes on.
    pub fn cut_off(&self) {
        self.shared.machine().ssh = None;
    }

    /// Ends every process of the host at once and starts it again, as a reset does: SSH answers at the same address with the same key, `/run`
    /// is empty, and the wrapper is started at boot. Returns when SSH answers and the wrapper has been started.
    pub fn reboot(&self) -> anyhow::Result<()> {
        self.shared.reboot()
    }

    /// Destroys the host as a cloud destroys a VM. Returns how many jobs were lost. Does nothing the second time.
    pub fn terminate(&self) -> usize {
        self.shared.terminate()
    }
}

impl Shared {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    fn command(&self, spec: &HostSpec) -> anyhow::Result<Vec<OsString>> {
        let wrapper = match &spec.wrapper_program {
            Some(path) => path.clone(),
            None => terraform::built(WRAPPER)?,
        };
        let mut command: Vec<OsString> = vec![
            wrapper.into(),
            "run".into(),
            "--grpc-listen".into(),
            format!("unix://{}", self.socket().display()).into(),
        ];
        command.extend(spec.wrapper_options.iter().map(OsString::from));
        command.extend(["--".into(), terraform::built(RUNNER)?.into(), "run".into()]);
        command.extend(["--config".into(), self.folder.join("config.toml").into()]);
        command.extend(["--emulate-version".into(), OsString::from(&spec.runner_version)]);
        command.extend(["--lab".into(), OsString::from(self.queue.url())]);
        if spec.listen {
            command.extend(["--listen-address".into(), OsString::from(format!("{}:9252", self.ip))]);
        }
        command.extend(spec.runner_options.iter().map(OsString::from));
        Ok(command)
    }

    fn configure(&self, spec: &HostSpec) -> anyhow::Result<()> {
        let write = |name: &str, text: String| {
            fs::write(self.folder.join(name), text).with_context(|| format!("write {name}"))
        };
        write(".runner_system_id", self.instance_name.clone())?;
        if !spec.configured {
            return Ok(());
        }
        let tokens = spec.tokens.clone().unwrap_or_else(|| vec![format!("glrt-{}", self.instance_name)]);
        let mut text = format!("concurrent = {}\ncheck_interval = 0.1\n", spec.concurrent);
        if let Some(timeout) = spec.shutdown_timeout {
            text += &format!("shutdown_timeout = {}\n", timeout.as_secs_f64());
        }
        for token in tokens {
            let (name, url) = (&self.instance_name, self.queue.url());
            text +=
                &format!("\n[[runners]]\n  name = \"{name}\"\n  url = \"{url}\"\n  token = \"{token}\"\n");
        }
        write("config.toml", text)
    }

    fn power_on(&self, command: &[OsString], ssh: String) -> anyhow::Result<()> {
        let mut machine = self.machine();
        if machine.terminated {
            return Ok(());
        }
        let (events, name) = (self.events.clone(), self.instance_name.clone());
        let log = move |line| {
            events.record(&name, What::Log { line });
        };
        machine.init = Some(Init::start(command, &self.folder, log)?);
        machine.command = command.to_vec();
        self.events.record(&self.instance_name, What::InstanceBooted { ssh });
        Ok(())
    }

    fn reboot(&self) -> anyhow::Result<()> {
        let (command, kind) = {
            let mut machine = self.machine();
            machine.init = None;
            let ssh = machine.ssh.as_mut().context("the host was destroyed or cut off")?;
            ssh.stop();
            let kind = ssh.kind().to_owned();
            (machine.command.clone(), kind)
        };
        self.queue.host_vanished(&self.instance_name, "its host was reset");
        // The socket and the state file live in `/run` on a real host.
        for entry in fs::read_dir(&self.folder).context("list the host's files")? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SOCKET)) {
                fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
        self.events.note(&self.instance_name, "the host was reset");
        self.machine().ssh.as_mut().context("the host was destroyed meanwhile")?.start_again()?;
        self.power_on(&command, kind)
    }

    fn processes(&self) -> Vec<Process> {
        let machine = self.machine();
        machine.init.as_ref().map_or_else(Vec::new, Init::processes)
    }

    fn pid_of(&self, program: &str) -> Option<u32> {
        self.processes().iter().find(|process| process.program == program).map(|process| process.pid)
    }

    fn terminate(&self) -> usize {
        let runner_alive = self.pid_of(RUNNER).is_some();
        let before = self.queue.runner(&self.instance_name);
        let mut machine = self.machine();
        if machine.terminated {
            return 0;
        }
        machine.terminated = true;
        self.events
            .record(&self.instance_name, What::InstanceTerminating { runner_alive, jobs: before.running });
        machine.ssh = None;
        machine.init = None;
        // Whatever the runner did not report until its death, it never will.
        self.queue.host_vanished(&self.instance_name, "its host was destroyed");
        let lost = self.queue.runner(&self.instance_name).lost - before.lost;
        self.events.record(&self.instance_name, What::InstanceRemoved { lost });
        lost
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.terminate();
    }
}

fn kill(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let Some(pid) = Pid::from_raw(pid.cast_signed()) else { bail!("{pid} is no pid") };
    kill_process(pid, signal).with_context(|| format!("send {signal:?} to {pid:?}"))
}

/// An address of its own for each host, as VMs have: all of 127.0.0.0/8 is loopback on Linux. So the runner can have its
/// usual port, and no two hosts, of tests that run side by side or of other users, meet on one.
fn own_address() -> Ipv4Addr {
    let [a, b, c, ..] = uuid::Uuid::new_v4().into_bytes();
    // Neither the 127.0.0.x that everybody uses nor a broadcast-looking end.
    Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254))
}
