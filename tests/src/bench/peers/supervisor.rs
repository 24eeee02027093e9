//! Starts the supervisors.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Read as _,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, mkfifoat},
    process::{Pid, Signal, kill_process},
};

use super::query::Query;
use crate::{debian::booted::System, lab::host::procs, terraform};

/// Limit for operations that normally finish immediately.
const LIMIT: Duration = Duration::from_secs(30);

/// The unit in a booted systemd, and the directory of its files.
const UNIT: &str = "bench-peer.service";
const INSIDE: &str = "/run/bench-peer";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Grit,
    Runit,
    S6,
    Supervisord,
    Systemd,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] = [Kind::Grit, Kind::Runit, Kind::S6, Kind::Supervisord, Kind::Systemd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Grit => "grit-wrapper",
            Kind::Runit => "runit's runsv",
            Kind::S6 => "s6-supervise",
            Kind::Supervisord => "supervisord",
            Kind::Systemd => "systemd",
        }
    }

    /// The delay before the restart after `failures` earlier failures.
    pub(super) fn restart_delay(self, failures: u32) -> Duration {
        match self {
            Kind::Grit => Duration::from_secs(1) * 2_u32.pow(failures),
            Kind::Runit | Kind::S6 | Kind::Supervisord | Kind::Systemd => Duration::ZERO,
        }
    }

    /// Whether other programs can read the state over a socket.
    pub(super) fn has_api(self) -> bool {
        matches!(self, Kind::Grit | Kind::Supervisord | Kind::Systemd)
    }
}

/// The supervised script, and the pipe into which each start of it writes a line.
#[derive(Debug)]
pub(super) struct Script {
    folder: PathBuf,
    starts: Starts,
}

impl Script {
    pub(super) fn new(folder: &Path) -> anyhow::Result<Script> {
        let starts = prepare(folder, folder)?;
        Ok(Script { folder: folder.to_owned(), starts })
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(self.folder.join("run"));
        command.stdin(Stdio::null());
        command
    }

    /// Waits for the next start.
    pub(super) fn started(&self) -> anyhow::Result<()> {
        self.starts.next()
    }
}

/// Writes the script and its pipe into a directory, which the supervisor sees at the path `inside`.
fn prepare(folder: &Path, inside: &Path) -> anyhow::Result<Starts> {
    let (run, pipe) = (folder.join("run"), folder.join("started"));
    let script =
        format!("#!/bin/sh\necho started >{}\nexec sleep infinity\n", inside.join("started").display());
    fs::write(&run, script).context("write the script")?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).context("write the script")?;
    mkfifoat(rustix::fs::CWD, &pipe, Mode::RWXU).context("make a pipe")?;
    // Also open for writing: otherwise the pipe would be at its end whenever no script has it open.
    let pipe = File::options().read(true).write(true).open(&pipe).context("open a pipe")?;
    Ok(Starts(pipe))
}

#[derive(Debug)]
struct Starts(File);

impl Starts {
    fn next(&self) -> anyhow::Result<()> {
        let limit = Timespec::try_from(LIMIT).context("a limit")?;
        if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit))? == 0 {
            bail!("no start within {LIMIT:?}");
        }
        let mut line = [0; 8];
        (&self.0).read_exact(&mut line).context("read a pipe")
    }
}

/// A running supervisor with its process. Dropping it ends both.
pub(super) struct Supervisor {
    pub(super) kind: Kind,
    pub(super) pid: u32,
    process: Option<Child>,
    system: Option<System>,
    starts: Starts,
    folder: tempfile::TempDir,
}

impl Supervisor {
    /// Starts a supervisor; an error names what is missing.
    pub(super) fn start(kind: Kind, script: &Script) -> anyhow::Result<Supervisor> {
        let folder =
            tempfile::Builder::new().prefix("peer-").tempdir_in(&script.folder).context("make a folder")?;
        if kind == Kind::Systemd {
            return Self::boot(folder);
        }
        let path = folder.path();
        let starts = prepare(path, path)?;
        let log = || File::create(path.join("output")).context("make a log");
        let mut command = command(kind, path)?;
        command.stdin(Stdio::null()).stdout(log()?).stderr(log()?).process_group(0);
        let process = command.spawn().with_context(|| format!("start {}", kind.name()))?;
        Ok(Supervisor { kind, pid: process.id(), process: Some(process), system: None, starts, folder })
    }

    /// systemd is the first process of a machine.
    fn boot(folder: tempfile::TempDir) -> anyhow::Result<Supervisor> {
        let system = System::boot()?;
        let outside = system.path(INSIDE);
        fs::create_dir(&outside).context("make a folder")?;
        let starts = prepare(&outside, Path::new(INSIDE))?;
        let unit = format!(
            "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart={INSIDE}/run\nRestart=always\nRestartSec=0\n"
        );
        fs::write(system.path("/run/systemd/system").join(UNIT), unit).context("write a unit")?;
        system.succeeds(&["systemctl", "daemon-reload"])?;
        system.succeeds(&["systemctl", "start", UNIT])?;
        Ok(Supervisor {
            kind: Kind::Systemd,
            pid: system.init(),
            process: None,
            system: Some(system),
            starts,
            folder,
        })
    }

    /// Waits for the next start of the process.
    pub(super) fn started(&mut self) -> anyhow::Result<()> {
        self.starts.next()
    }

    /// Kills the process, not the supervisor.
    pub(super) fn kill_child(&self) -> anyhow::Result<()> {
        let below = procs::descendants(self.pid);
        let child = below.iter().find(|process| process.program == "sleep" || process.program == "coreutils");
        let pid =
            child.and_then(|child| Pid::from_raw(child.pid.cast_signed())).context("there is no process")?;
        kill_process(pid, Signal::KILL).context("kill the process")
    }

    /// Reads the state with the supervisor's command.
    pub(super) fn command_query(&self) -> anyhow::Result<Query> {
        let path = self.folder.path();
        let program = |name: &str| find(name).map(Command::new);
        let (way, mut command) = match self.kind {
            Kind::Grit => {
                let mut command = Command::new(terraform::built("grit-wrapper")?);
                command.args(["status", "--address", &format!("unix://{}", socket(path).display())]);
                ("grit-wrapper status", command)
            }
            Kind::Runit => {
                let mut command = program("sv")?;
                command.arg("status").arg(path);
                ("sv status", command)
            }
            Kind::S6 => {
                let mut command = program("s6-svstat")?;
                command.arg(path);
                ("s6-svstat", command)
            }
            Kind::Supervisord => {
                let mut command = supervisor("supervisorctl")?;
                command.arg("-c").arg(path.join("supervisord.conf")).args(["status", "process"]);
                ("supervisorctl status", command)
            }
            Kind::Systemd => {
                let system = self.system.as_ref().context("no system")?;
                ("systemctl is-active", system.command(&["systemctl", "is-active", UNIT]))
            }
        };
        with_libraries(&mut command);
        Ok(Query::command(way, command))
    }

    /// Reads the state over the supervisor's API.
    pub(super) fn api_query(&self) -> anyhow::Result<Option<Query>> {
        let socket = socket(self.folder.path());
        Ok(match self.kind {
            Kind::Grit => Some(Query::grpc(&socket)?),
            Kind::Supervisord => Some(Query::xml_rpc(&socket)?),
            // systemd's API is the protocol of D-Bus, for which `systemctl` is the client here.
            Kind::Runit | Kind::S6 | Kind::Systemd => None,
        })
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        let below = procs::descendants(process.id());
        // The supervisor ends first: otherwise it would restart the process.
        let _ = process.kill();
        let _ = process.wait();
        for pid in below.iter().filter_map(|process| Pid::from_raw(process.pid.cast_signed())) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

fn command(kind: Kind, folder: &Path) -> anyhow::Result<Command> {
    let mut command = match kind {
        Kind::Grit => {
            let mut command = Command::new(terraform::built("grit-wrapper")?);
            command.args(["run", "--log-level", "error", "--restart", "always"]);
            // The peers do not probe the process.
            command.args(["--probe-interval", "1h"]);
            command.args(["--grpc-listen", &format!("unix://{}", socket(folder).display()), "--"]);
            // As a runner without an HTTP server: nothing but its process can be probed.
            let config = folder.join("config.toml");
            let section =
                "name = \"m\"\nurl = \"http://127.0.0.1\"\ntoken = \"glrt-bench\"\nexecutor = \"shell\"\n";
            fs::write(&config, format!("[[runners]]\n{section}")).context("write config.toml")?;
            command.arg(folder.join("run")).args(["run", "--config"]).arg(config);
            command
        }
        Kind::Runit => {
            let mut command = Command::new(find("runsv")?);
            command.arg(folder);
            command
        }
        Kind::S6 => {
            let mut command = Command::new(find("s6-supervise")?);
            command.arg(folder);
            command
        }
        Kind::Supervisord => {
            let config = folder.join("supervisord.conf");
            let path = folder.display();
            let text = format!(
                "[supervisord]\nnodaemon=true\nlogfile={path}/supervisord.log\npidfile={path}/pid\nchildlogdir={path}\n\
                 [unix_http_server]\nfile={path}/socket\n[supervisorctl]\nserverurl=unix://{path}/socket\n\
                 [rpcinterface:supervisor]\n\
                 supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n\
                 [program:process]\ncommand={path}/run\nautorestart=true\n"
            );
            fs::write(&config, text).context("write supervisord.conf")?;
            let mut command = supervisor("supervisord")?;
            command.arg("-c").arg(config);
            command
        }
        Kind::Systemd => bail!("systemd is booted"),
    };
    with_libraries(&mut command);
    Ok(command)
}

/// supervisord or its client, with the interpreter of Debian's Python modules.
fn supervisor(program: &str) -> anyhow::Result<Command> {
    find("supervisord")?;
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", &format!("supervisor.{program}")]);
    if let Some(unpacked) = unpacked() {
        command.env("PYTHONPATH", unpacked.join("usr/lib/python3/dist-packages"));
    }
    Ok(command)
}

/// A peer's program: of Debian's packages below the target directory, or on PATH.
fn find(name: &str) -> anyhow::Result<PathBuf> {
    let folders = ["usr/bin", "bin", "usr/sbin", "sbin"];
    let unpacked = unpacked().and_then(|unpacked| {
        folders.iter().map(|folder| unpacked.join(folder).join(name)).find(|path| path.is_file())
    });
    match unpacked.or_else(|| terraform::on_path(name)) {
        Some(path) => Ok(path),
        None => bail!("{name} is not installed"),
    }
}

/// Where `cargo xtask bench` unpacks the peers: `peers/` in the target directory, which is some directories above this program.
fn unpacked() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors().take(5).map(|folder| folder.join("peers")).find(|path| path.is_dir())
}

/// Unpacked programs find their libraries only with this variable.
fn with_libraries(command: &mut Command) {
    let Some(libraries) = unpacked().map(|unpacked| unpacked.join("usr/lib")) else { return };
    let folders = fs::read_dir(libraries).into_iter().flatten().flatten().map(|entry| entry.path());
    let paths: Vec<OsString> = folders.filter(|path| path.is_dir()).map(PathBuf::into_os_string).collect();
    if command.get_program().to_string_lossy().contains("/peers/") && !paths.is_empty() {
        command.env("LD_LIBRARY_PATH", paths.join(&OsString::from(":")));
    }
}
