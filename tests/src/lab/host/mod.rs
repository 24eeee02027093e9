//! A host: the stand-in for a VM with a runner manager.
//!
//! It has an SSH server (see [`ssh`]), the real `grit-wrapper` with a unix socket, and the runner
//! stand-in. They run below one `lab-init`, the host's first process, which inherits orphans. So terminating the host, like
//! destroying a VM, ends all its processes with SIGKILL, orphans included. The SSH server runs
//! beside `lab-init` and ends at the same time. Running jobs are lost and counted.

pub mod init;
pub mod procs;
mod spec;
pub mod ssh;

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

pub use self::spec::HostSpec;
use self::{
    init::Init,
    procs::Process,
    ssh::{ClientKey, Ssh},
};
use super::{
    event::{EventLog, RESET_BEGINS, What},
    queue::Queue,
};
use crate::{poll, sshd};

/// The program names in the process tree.
const RUNNER: &str = "runner-stand-in";
const WRAPPER: &str = "grit-wrapper";
/// The wrapper's socket, in the host's directory.
const SOCKET: &str = "wrapper.sock";

/// For broken tests: a killed process ends at once.
const LIMIT: Duration = Duration::from_secs(60);

/// A running host. Clones share it; dropping the last one terminates it.
#[derive(Debug, Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    instance_name: String,
    runner_version: String,
    folder: PathBuf,
    runner_address: SocketAddr,
    events: EventLog,
    queue: Queue,
    machine: Mutex<Machine>,
    address: String,
    username: String,
    host_key: String,
}

/// The parts that end on termination.
#[derive(Debug, Default)]
struct Machine {
    ssh: Option<Ssh>,
    init: Option<Init>,
    /// The command of its first process, after power-on.
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
                runner_address: sshd::free_address()?,
                machine: Mutex::default(),
            }),
        };
        let kind = ssh.kind().to_owned();
        host.shared.machine().ssh = Some(ssh);
        let shared = &host.shared;
        let command = spec.command(&shared.folder, shared.runner_address, &shared.queue.url())?;
        spec.configure(&shared.folder, &shared.instance_name, &shared.queue)?;
        if spec.boot_takes.is_zero() {
            host.shared.power_on(&command, kind, None)?;
        } else {
            let takes = spec.boot_takes;
            let shared = Arc::downgrade(&host.shared);
            std::thread::spawn(move || {
                std::thread::sleep(takes);
                let Some(shared) = shared.upgrade() else { return };
                if let Err(error) = shared.power_on(&command, kind, None) {
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

    /// The runner version that was requested at creation.
    pub fn runner_version(&self) -> &str {
        &self.shared.runner_version
    }

    /// `host:port` of the SSH server.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// The SSH user.
    pub fn username(&self) -> &str {
        &self.shared.username
    }

    /// The host's public key, as in a `known_hosts` line after the name: `ssh-ed25519 AAAA…`.
    pub fn host_key(&self) -> &str {
        &self.shared.host_key
    }

    /// The wrapper's listen address: `unix:///…`.
    pub fn wrapper_address(&self) -> String {
        format!("unix://{}", self.shared.socket().display())
    }

    /// The URL of the runner's HTTP server, which exists only if the specification has `listen`.
    pub fn runner_url(&self) -> String {
        format!("http://{}", self.shared.runner_address)
    }

    /// The wrapper's socket.
    pub fn wrapper_socket(&self) -> PathBuf {
        self.shared.socket()
    }

    /// The host's directory.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// The processes of the host, without those of the SSH server.
    pub fn processes(&self) -> Vec<Process> {
        self.shared.processes()
    }

    /// The runner's PID, or `None` if no runner runs.
    pub fn runner_pid(&self) -> Option<u32> {
        self.shared.pid_of(RUNNER)
    }

    /// The wrapper's PID, or `None` if no wrapper runs.
    pub fn wrapper_pid(&self) -> Option<u32> {
        self.shared.pid_of(WRAPPER)
    }

    /// Sends a signal to the runner directly, not through the wrapper.
    pub fn signal_runner(&self, signal: Signal) -> anyhow::Result<()> {
        kill(self.runner_pid().context("no runner runs")?, signal)
    }

    /// Sends a signal to the wrapper; SIGKILL simulates a crash.
    pub fn signal_wrapper(&self, signal: Signal) -> anyhow::Result<()> {
        kill(self.wrapper_pid().context("no wrapper runs")?, signal)
    }

    /// Starts the wrapper again with the same command, as systemd would.
    pub fn start_wrapper(&self) -> anyhow::Result<()> {
        self.shared.machine().init.as_mut().context("the host is not up")?.start_again()
    }

    /// Kills the wrapper, and starts the next one when the process has ended.
    ///
    /// # Panics
    ///
    /// If the killed process does not end.
    pub fn replace_wrapper(&self) -> anyhow::Result<()> {
        self.signal_wrapper(Signal::KILL)?;
        poll::until("the wrapper is dead", LIMIT, || self.wrapper_pid().map_or(Ok(()), Err));
        self.start_wrapper()
    }

    /// Ends the SSH server and its sessions: the host is unreachable, and its other processes keep running.
    pub fn cut_off(&self) {
        let mut machine = self.shared.machine();
        machine.ssh = machine.ssh.take().and_then(|mut ssh| ssh.stop().then_some(ssh));
    }

    /// Ends [`cut_off`](Self::cut_off): sshd has the same address and key. Only a host with sshd can be reconnected.
    pub fn reconnect(&self) -> anyhow::Result<()> {
        self.shared.machine().ssh.as_mut().context("the host has no sshd")?.start_again()
    }

    /// Kills sshd with all its sessions, and starts it again.
    pub fn restart_sshd(&self) -> anyhow::Result<()> {
        self.cut_off();
        self.reconnect()
    }

    /// Ends all processes of the host and boots it again, as a reset does: SSH has the same address and key, `/run`
    /// is empty, and the wrapper is started at boot. Returns when SSH answers and the wrapper has been started.
    pub fn reboot(&self) -> anyhow::Result<()> {
        self.shared.reboot()
    }

    /// Installs another version of the runner and reboots the host.
    pub fn reboot_with_runner(&self, version: &str) -> anyhow::Result<()> {
        {
            let mut machine = self.shared.machine();
            let option = machine.command.iter().position(|argument| argument == "--emulate-version");
            let option = option.context("the wrapper was never started")?;
            machine.command[option + 1] = version.into();
        }
        self.reboot()
    }

    /// Destroys the host as a cloud destroys a VM. Returns the number of lost jobs. A second call has no effect.
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

    fn power_on(&self, command: &[OsString], ssh: String, boot_id: Option<&Path>) -> anyhow::Result<()> {
        let mut machine = self.machine();
        if machine.terminated {
            return Ok(());
        }
        let (events, name) = (self.events.clone(), self.instance_name.clone());
        let log = move |line| {
            events.record(&name, What::Log { line });
        };
        machine.init = Some(Init::start(command, &self.folder, boot_id, log)?);
        machine.command = command.to_vec();
        self.events.record(&self.instance_name, What::InstanceBooted { ssh });
        Ok(())
    }

    fn reboot(&self) -> anyhow::Result<()> {
        self.events.note(&self.instance_name, RESET_BEGINS);
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
        // Only root can give the host a boot id of its own.
        let boot_id = rustix::process::geteuid().is_root().then(|| self.folder.join("boot_id"));
        if let Some(boot_id) = &boot_id {
            let id = fs::read("/proc/sys/kernel/random/uuid").context("make a boot id")?;
            fs::write(boot_id, id).context("write the boot id")?;
        }
        self.power_on(&command, kind, boot_id.as_deref())
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
        // The runner cannot report anything after this.
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
