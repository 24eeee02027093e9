//! A unit of systemd that owns the runner: PID 1 is the parent, and this wrapper attaches to the main process.
//!
//! Nothing happens to the runner when the wrapper is killed, upgraded or restarted. A drained runner stays stopped, because a file closes the unit for
//! each start ([`drop_in`]): a person, an upgrade of GitLab's package and `Restart=` cannot start the runner beside it or after it. The code of an exit
//! counts only for the same process of the same invocation of the unit. docs/adr/0003-attach-to-the-unit.md has the measurements.

mod drop_in;
mod exit_record;
mod host;
mod name;
mod systemctl;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use self::systemctl::{LIMIT, MAIN_START, PROPERTIES, Shown};
pub use self::{
    exit_record::record_exit,
    host::{Host, Linux},
    name::{UnitError, UnitName},
};
use super::{Change, Owner};
use crate::supervise::{
    core::{ChildInfo, Moment},
    process::{Exit, Identity, Signal},
};

/// Interval of reading the unit while its main process runs: for its settings. The exit is seen at once.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Interval while no main process runs, in the first minute and later: `systemctl show` needs 20 ms of CPU.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const LATE_LOOK_INTERVAL: Duration = Duration::from_secs(5);
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// After this time without a start in progress, systemd does not start the unit by itself. At the boot of the host, other units come first.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// How long systemd may need to show an exit, or the main process of a start. Measured: 0.1 s.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);
const SHOWN_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout of `systemctl start`.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The longest times after an exit, and of a start.
pub(in crate::supervise) const LONGEST_EXIT: Duration = SHOWN_WITHIN.saturating_add(LIMIT);
pub(in crate::supervise) const LONGEST_START: Duration =
    LIMIT.saturating_add(START_LIMIT).saturating_add(SHOWN_WITHIN);

/// Receives the faults of the unit's settings, each as a reason.
pub type UnitFaults = Box<dyn Fn(Vec<String>) + Send + Sync>;

/// A unit, and its main process.
pub struct Unit<H: Host = Linux> {
    host: H,
    name: UnitName,
    folder: PathBuf,
    faults: UnitFaults,
    main: Option<Main<H::Process>>,
    /// Others cannot start the unit.
    held: bool,
    /// There is no process, and it is not known yet whether systemd starts one.
    is_unsettled: bool,
    /// When the unit is read again, and since when there is no main process.
    look_at: Instant,
    idle_since: Instant,
    /// The last start that the closed unit has refused, as systemd's timestamp.
    refused_start: Option<String>,
    /// The start of the last main process that is known, as systemd's timestamp. `None`: an earlier wrapper knows it.
    last_start: Option<String>,
}

/// The main process. It may have exited.
struct Main<P> {
    child: ChildInfo,
    /// systemd's id of its start.
    invocation: String,
    /// `None`: it has exited before this wrapper was started.
    process: Option<P>,
}

impl Unit {
    /// Whether the unit of this name is closed for each start. `folder` is the directory of the wrappers.
    pub fn is_closed(folder: &Path, name: &UnitName) -> bool {
        gate(folder, name).exists()
    }

    /// The file with the last exit of the unit of this name, in the directory of the wrappers.
    pub fn exit_file(folder: &Path, name: &UnitName) -> PathBuf {
        folder.join(format!("{name}.exit"))
    }
}

impl<H: Host> Unit<H> {
    /// `folder` is the directory of the wrappers.
    pub fn new(host: H, name: UnitName, folder: PathBuf, faults: UnitFaults) -> Self {
        let now = Instant::now();
        Self {
            host,
            name,
            folder,
            faults,
            main: None,
            held: false,
            is_unsettled: true,
            look_at: now,
            idle_since: now,
            refused_start: None,
            last_start: Some("0".to_owned()),
        }
    }

    /// Continues after an earlier wrapper. `process`: the process and its invocation that this wrapper has saved.
    ///
    /// # Errors
    ///
    /// If it cannot be read whether that process runs.
    pub fn after(self, process: Option<(ChildInfo, String)>) -> io::Result<Self> {
        let main = match process {
            Some((child, invocation)) => {
                let process = self.host.hold_same(&child.process)?;
                Some(Main { child, invocation, process })
            }
            None => None,
        };
        Ok(Self { main, last_start: None, ..self })
    }

    async fn show(&self) -> io::Result<Shown> {
        let shown = self.show_only().await?;
        (self.faults)(drop_in::faults(&self.name, &shown));
        Ok(shown)
    }

    /// The same without a check of the settings.
    async fn show_only(&self) -> io::Result<Shown> {
        let words = ["show", "--no-pager", PROPERTIES, "--", self.name.as_str()];
        Ok(Shown::parse(&self.host.systemctl(&words, LIMIT).await?))
    }

    fn look_after(&mut self, interval: Duration) {
        self.look_at = Instant::now() + interval;
    }

    /// How the main process that has exited ended. Waits while systemd does not respond.
    async fn exit(&self, main: &Main<H::Process>) -> Exit {
        let (pid, invocation) = (main.child.pid(), main.invocation.as_str());
        let mut until = Instant::now() + SHOWN_WITHIN;
        loop {
            let shown = self.show_only().await;
            if let Err(error) = &shown {
                warn!(%error, unit = %self.name, "cannot read how the runner has ended; retrying");
                until = Instant::now() + SHOWN_WITHIN;
            }
            let shown = shown.ok().and_then(|shown| shown.exit_of(pid, invocation));
            // Of a unit that was started again, or removed, systemd does not show it.
            let file = || self.host.read(&Unit::exit_file(&self.folder, &self.name));
            let exit = shown.or_else(|| exit_record::parse(&file()?, invocation));
            match exit {
                Some(exit) => return exit,
                None if Instant::now() >= until => return Exit::Unknown,
                None => sleep(SHOWN_INTERVAL).await,
            }
        }
    }

    /// Attaches to the main process that systemd shows; `None` if there is none any more.
    async fn attach(&mut self, mut shown: Shown) -> io::Result<Option<ChildInfo>> {
        let until = Instant::now() + SHOWN_WITHIN;
        while let Some(pid) = shown.main_pid() {
            let process = self.host.hold(pid);
            // Read after the pidfd was opened: from then on, the PID cannot be reused. In a series of restarts, each second first read is wrong.
            let again = self.show().await?;
            let is_same =
                again.main_pid() == Some(pid) && again.get("InvocationID") == shown.get("InvocationID");
            if let (true, Ok(process)) = (is_same, process)
                && let Ok(identity) = self.host.identity(pid)
                && !self.host.is_before_exec(pid)
            {
                let child = ChildInfo { process: identity, started: Moment::now() - self.host.age(pid) };
                let invocation = again.get("InvocationID").to_owned();
                self.main = Some(Main { child, invocation, process: Some(process) });
                self.last_start = Some(again.get(MAIN_START).to_owned());
                self.is_unsettled = false;
                self.look_after(CHECK_INTERVAL);
                return Ok(Some(child));
            }
            if Instant::now() >= until {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the main process of {} changes all the time", self.name),
                ));
            }
            sleep(SHOWN_INTERVAL).await;
            shown = self.show().await?;
        }
        Ok(None)
    }

    /// What systemd shows while no main process is known.
    async fn look(&mut self) -> io::Result<Option<Change>> {
        let until = Instant::now() + SHOWN_WITHIN;
        let mut shown = self.show().await?;
        // A start that had begun before the unit was closed.
        while self.held && shown.is_starting() {
            if Instant::now() >= until {
                return Err(io::Error::other(format!("{} is being started", self.name)));
            }
            sleep(SHOWN_INTERVAL).await;
            shown = self.show().await?;
        }
        if shown.main_pid().is_some() {
            if let Some(child) = self.attach(shown).await? {
                info!(pid = child.pid(), unit = %self.name, "attached to the main process of the unit");
                if self.held {
                    warn!(
                        unit = %self.name,
                        "the unit was started after a drain, although it is closed for starts, and is drained again: check the drop-in of the unit. To start the \
                         runner: `grit-wrapper start`"
                    );
                }
                return Ok(Some(Change::Appeared(child)));
            }
            return Ok(None);
        }
        if let Some(child) = self.exited_unseen(&shown)? {
            return Ok(Some(Change::Appeared(child)));
        }
        if self.held {
            self.note_refused_start(&shown);
            if shown.is_restarting() {
                self.stop().await;
            }
        }
        if shown.is_over()
            && self.idle_since.elapsed() >= SETTLED_AFTER
            && std::mem::take(&mut self.is_unsettled)
        {
            return Ok(Some(Change::NotRestarted));
        }
        Ok(None)
    }

    /// The main process that was started and has exited since the last look. Its exit is the next change. A closed unit starts none.
    fn exited_unseen(&mut self, shown: &Shown) -> io::Result<Option<ChildInfo>> {
        let Some((pid, start)) = shown.exited() else { return Ok(None) };
        let before = self.last_start.replace(shown.get(MAIN_START).to_owned());
        if self.held || before.is_none() || before == self.last_start {
            return Ok(None);
        }
        let process = Identity::of_exited(pid, start, self.host.boot_id()?);
        let child = ChildInfo { process, started: Moment::of_monotonic(start) };
        self.main = Some(Main { child, invocation: shown.get("InvocationID").to_owned(), process: None });
        Ok(Some(child))
    }

    /// Logs a start that the closed unit has refused: `systemctl start` reports success then.
    fn note_refused_start(&mut self, shown: &Shown) {
        let at = shown.get("ConditionTimestampMonotonic");
        let is_refused = shown.get("ConditionResult") == "no";
        let before = self.refused_start.replace(at.to_owned());
        if is_refused && before.as_deref() != Some(at) {
            warn!(
                unit = %self.name,
                "systemd has skipped a start of the unit, because the runner is drained. To start it: `grit-wrapper start`"
            );
        }
    }

    /// Prevents the restart of a runner that was drained. After a failure it is repeated at the next look.
    async fn stop(&self) {
        let words = ["stop", "--no-block", "--", self.name.as_str()];
        if let Err(error) = self.host.systemctl(&words, LIMIT).await {
            warn!(%error, unit = %self.name, "cannot stop the unit of the drained runner; retrying");
        }
    }
}

/// The file that closes the unit of this name for each start, in the directory of the wrappers.
fn gate(folder: &Path, name: &UnitName) -> PathBuf {
    folder.join("held").join(name.as_str())
}

impl<H: Host> Owner for Unit<H> {
    async fn changed(&mut self) {
        match self.main.as_ref().map(|main| &main.process) {
            Some(None) => {}
            Some(Some(process)) => tokio::select! {
                biased;
                () = self.host.exited(process) => {}
                () = sleep_until(self.look_at) => {}
            },
            None => sleep_until(self.look_at).await,
        }
    }

    async fn news(&mut self) -> io::Result<Option<Change>> {
        let host = &self.host;
        let has_exited = |main: &mut Main<H::Process>| {
            main.process.as_ref().is_none_or(|process| host.has_exited(process))
        };
        if let Some(main) = self.main.take_if(has_exited) {
            let exit = self.exit(&main).await;
            self.is_unsettled = true;
            self.idle_since = Instant::now();
            self.look_after(LOOK_INTERVAL);
            if self.held {
                self.stop().await;
            }
            return Ok(Some(Change::Exited(exit)));
        }
        if self.main.is_some() {
            self.look_after(CHECK_INTERVAL);
            return self.show().await.map(|_| None);
        }
        let interval =
            if self.idle_since.elapsed() < LOOK_PERIOD { LOOK_INTERVAL } else { LATE_LOOK_INTERVAL };
        self.look_after(interval);
        self.look().await
    }

    fn hold(&mut self, held: bool) -> io::Result<()> {
        self.held = held;
        let gate = gate(&self.folder, &self.name);
        let done = match (held, self.host.exists(&gate)) {
            (true, false) => self.host.create(&gate),
            (false, true) => self.host.remove(&gate),
            _ => Ok(()),
        };
        done.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", gate.display())))
    }

    /// `KillMode=mixed`: systemd ends all other processes after each exit of the main process.
    fn force(&mut self) {}

    async fn start(&mut self) -> io::Result<ChildInfo> {
        // A unit that has failed too often is not started otherwise.
        let name = self.name.as_str();
        let _not_failed = self.host.systemctl(&["reset-failed", "--", name], LIMIT).await;
        self.host.systemctl(&["start", "--", name], START_LIMIT).await?;
        let until = Instant::now() + SHOWN_WITHIN;
        loop {
            let shown = self.show().await?;
            let is_over = shown.is_over();
            if shown.main_pid().is_some()
                && let Some(child) = self.attach(shown).await?
            {
                return Ok(child);
            }
            if is_over || Instant::now() >= until {
                let name = &self.name;
                return Err(io::Error::other(format!(
                    "{name} was started, but does not run: see `systemctl status {name}`"
                )));
            }
            sleep(SHOWN_INTERVAL).await;
        }
    }

    /// SIGKILL to the main process: with `KillMode=mixed`, systemd then kills all other processes of the unit.
    async fn signal(&mut self, signal: Signal) -> io::Result<()> {
        let Some(Main { child, process: Some(process), .. }) = &self.main else { return Ok(()) };
        self.host.signal(child.pid(), process, signal).await
    }

    fn invocation(&self) -> Option<&str> {
        self.main.as_ref().map(|main| main.invocation.as_str())
    }
}

impl<H: Host> fmt::Debug for Unit<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let main = self.main.as_ref().map(|main| main.child);
        f.debug_struct("Unit")
            .field("name", &self.name)
            .field("main", &main)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}
