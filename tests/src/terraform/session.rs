//! A command in a separate terminal.
//!
//! On Ctrl-C the kernel sends SIGINT to every process of the terminal's foreground group: Terraform and its
//! providers. So the command gets a real pseudo-terminal as its controlling terminal (by util-linux's `setsid --ctty`, because that
//! needs calls between fork and exec), and is the leader of its session and group.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process, kill_process_group},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::poll;

/// How long to wait for the last lines after the exit of a command.
const LAST_LINES: Duration = Duration::from_secs(5);

/// A running command. Dropping it kills the command's whole group.
#[derive(Debug)]
pub struct Session {
    child: Child,
    terminal: File,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    ended: bool,
}

/// The result of a session.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The exit status; `None` if a signal ended the command.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The whole terminal output.
    pub output: String,
    /// The duration of the wait.
    pub waited: Duration,
}

impl Session {
    /// Starts `command`, whose standard streams become the terminal.
    ///
    /// # Errors
    ///
    /// If no terminal is available, or the command cannot be started.
    pub(super) fn start(command: &Command) -> anyhow::Result<Self> {
        let terminal =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).context("openpt")?;
        grantpt(&terminal).context("grantpt")?;
        unlockpt(&terminal).context("unlockpt")?;
        let name = ptsname(&terminal, Vec::new()).context("ptsname")?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).context("opening the terminal")?;
        let mut wrapped = Command::new("setsid");
        // With default signal actions: under `nohup` this process ignores SIGHUP, and its children would inherit that.
        wrapped.args(["--ctty", "env", "--default-signal"]);
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped.env_clear();
        wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        wrapped
            .stdin(Stdio::from(side.try_clone()?))
            .stdout(Stdio::from(side.try_clone()?))
            .stderr(Stdio::from(side));
        let child = wrapped.spawn().context("starting setsid (of util-linux)")?;
        // Otherwise its copies of the command's side would keep the terminal open.
        drop(wrapped);
        let terminal = File::from(terminal);
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let (mut reading, shown) = (terminal.try_clone()?, output.clone());
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            // The end is an error here: the other side is closed.
            while let Ok(length @ 1..) = reading.read(&mut buffer) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
            }
        });
        Ok(Self { child, terminal, output, reader, ended: false })
    }

    /// The PID of the command, which is also the ID of its group and session.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The terminal output so far.
    pub fn output(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).replace('\r', "")
    }

    /// Waits until the terminal shows `text`. Panics after `limit`.
    #[track_caller]
    pub fn wait_for_text(&self, text: &str, limit: Duration) {
        poll::until(&format!("`{text}` on the terminal"), limit, || {
            let output = self.output();
            if output.contains(text) { Ok(()) } else { Err(output) }
        });
    }

    /// Types text; a newline ends an answer.
    ///
    /// # Errors
    ///
    /// If the terminal is closed.
    pub fn type_text(&mut self, text: &str) -> anyhow::Result<()> {
        self.terminal.write_all(text.as_bytes()).context("typing")
    }

    /// Types Ctrl-C: the kernel sends SIGINT to the whole foreground group.
    ///
    /// # Errors
    ///
    /// If the terminal is closed.
    pub fn ctrl_c(&mut self) -> anyhow::Result<()> {
        self.type_text("\x03")
    }

    /// Sends a signal to the command only.
    ///
    /// # Errors
    ///
    /// If it has exited.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// Sends a signal to the command's group: to the command and its providers.
    ///
    /// # Errors
    ///
    /// If it has exited.
    pub fn signal_group(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process_group(self.pid()?, signal)?)
    }

    /// Waits for the end of the command. Panics with the terminal output after `limit`.
    #[track_caller]
    pub fn wait(mut self, limit: Duration) -> Ended {
        let start = Instant::now();
        let status = poll::until("the command to end", limit, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(self.output()),
            Err(error) => Err(error.to_string()),
        });
        self.ended = true;
        let waited = start.elapsed();
        // The last lines may not have been read. All lines have been read when the other side is closed by all processes, including
        // providers that outlive a killed Terraform; they are not awaited here.
        let patience = Instant::now();
        while !self.reader.is_finished() && patience.elapsed() < LAST_LINES {
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = self.output();
        Ended { code: status.code(), signal: status.signal(), output, waited }
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.context("the process id is not one")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ended {
            // Fails if all of them have exited.
            let _ = self.signal_group(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
