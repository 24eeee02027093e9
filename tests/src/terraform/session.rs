//! A command in a terminal of its own.
//!
//! What a user's Ctrl-C does is the kernel's work: the terminal sends SIGINT to every process of its foreground group, Terraform and its
//! providers alike. So the command gets a real pseudo-terminal as its controlling one (through util-linux's `setsid --ctty`, since that
//! takes calls between fork and exec), and is the leader of its own session and group.

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

/// How long the last lines of a command that has ended are waited for.
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

/// How a session ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The exit status; `None` when a signal ended the command.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// All that the terminal showed.
    pub output: String,
    /// How long it was waited for.
    pub waited: Duration,
}

impl Session {
    /// Starts `command`, whose standard streams become the terminal.
    ///
    /// # Errors
    ///
    /// When there is no terminal to be had, or the command cannot be started.
    pub(super) fn start(command: &Command) -> anyhow::Result<Self> {
        let terminal =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).context("openpt")?;
        grantpt(&terminal).context("grantpt")?;
        unlockpt(&terminal).context("unlockpt")?;
        let name = ptsname(&terminal, Vec::new()).context("ptsname")?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).context("opening the terminal")?;
        let mut wrapped = Command::new("setsid");
        // With every signal as a terminal's shell has it: under `nohup` we ignore SIGHUP, and what we start would, too.
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
        // Its copies of the command's side of the terminal would keep it open for ever.
        drop(wrapped);
        let terminal = File::from(terminal);
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let (mut reading, shown) = (terminal.try_clone()?, output.clone());
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            // The end is an error here: nobody holds the other side any more.
            while let Ok(length @ 1..) = reading.read(&mut buffer) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
            }
        });
        Ok(Self { child, terminal, output, reader, ended: false })
    }

    /// The process id of the command, which is also that of its group and session.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All that the terminal showed so far.
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
    /// When the terminal is closed.
    pub fn type_text(&mut self, text: &str) -> anyhow::Result<()> {
        self.terminal.write_all(text.as_bytes()).context("typing")
    }

    /// Types Ctrl-C: the kernel sends SIGINT to the whole foreground group.
    ///
    /// # Errors
    ///
    /// When the terminal is closed.
    pub fn ctrl_c(&mut self) -> anyhow::Result<()> {
        self.type_text("\x03")
    }

    /// Sends a signal to the command alone.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// Sends a signal to the command's group: to it and to its providers.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn signal_group(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process_group(self.pid()?, signal)?)
    }

    /// Waits for the end of the command. Panics, with what the terminal shows, after `limit`.
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
        // The last lines may still be on their way. They have all come when nobody holds the other side any more, which includes
        // providers that outlive a killed Terraform; those are not waited for here.
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
            // Fails when all of them have ended, which is what is wanted.
            let _ = self.signal_group(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
