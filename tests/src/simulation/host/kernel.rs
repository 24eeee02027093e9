//! What a wrapper process sees of its host, and does there: the traits of the wrapper for the kernel, systemd, its files and its runner.

use std::{fmt, io, path::Path, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture, future::pending};
use grit_wrapper::{
    supervise::{
        Callback, Completion, EndedStop, Stop,
        owner::{Host as OfUnit, Processes},
        process::{BootId, Exit, Identity, Signal},
        record::StateFile,
    },
    testing::{Page, RunnerConfig, SimulatedRunner},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use super::{
    super::world::{Happening, World, WorldNow},
    Happens, Owner, identity,
    program::{Killed, Later},
    unit::Phase,
};

/// One wrapper process. After its end, nothing that it does has an effect.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) world: Arc<World>,
    pub(super) instance: String,
    pub(super) number: u32,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrapper {} of {}", self.number, self.instance)
    }
}

/// A process of the host, never another one with its PID.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process(Identity);

impl Seen {
    /// The world, for an operation of this process.
    fn operates(&self) -> Result<WorldNow<'_>, Killed> {
        let mut now = self.world.now();
        now.operates(&self.instance, self.number)?;
        Ok(now)
    }

    /// The same. A process that is killed here does nothing any more.
    async fn operates_or_ends(&self) {
        if self.operates().is_err() {
            pending::<()>().await;
        }
    }

    /// Waits for the end of a slow write, which comes before what follows.
    async fn is_free(&self) {
        let thaws = self.world.now().hosts.get(&self.instance).and_then(super::Host::thaws);
        if let Some(until) = thaws {
            sleep_until(until).await;
        }
    }

    fn runs(&self, process: &Identity) -> bool {
        let now = self.world.now();
        now.hosts.get(&self.instance).is_some_and(|host| host.runs(process))
    }

    fn news(&self) -> Option<Arc<Notify>> {
        self.world.now().hosts.get(&self.instance).map(|host| Arc::clone(&host.news))
    }

    async fn until_exit(&self, process: &Identity) {
        let Some(news) = self.news() else { return pending().await };
        loop {
            let notified = news.notified();
            if !self.runs(process) {
                return;
            }
            notified.await;
        }
    }

    async fn sends(&self, process: &Identity, signal: Signal) -> io::Result<()> {
        self.is_free().await;
        self.operates_or_ends().await;
        let mut now = self.world.now();
        now.signal(&self.instance, process, signal)
    }
}

fn killed() -> io::Error {
    io::Error::other("the process was killed")
}

fn no_space() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "no space left on device")
}

impl super::Host {
    /// Whether this process runs.
    fn runs(&self, process: &Identity) -> bool {
        let all = self.runner.iter().chain(&self.strays);
        process.boot == self.boot() && all.into_iter().any(|runner| runner.pid == process.pid)
    }
}

impl Processes for Seen {
    type Process = Process;

    async fn spawn(&mut self) -> io::Result<(Identity, Process)> {
        self.is_free().await;
        let slow = {
            self.operates_or_ends().await;
            let mut now = self.world.now();
            if now.random.percent(2) && !now.is_quiet {
                now.trace.count("spawn failed");
                return Err(io::Error::new(io::ErrorKind::NotFound, "not found"));
            }
            if now.random.percent(3) { now.random.millis(1, 15_000) } else { Duration::ZERO }
        };
        let process = {
            let mut now = self.world.now();
            let Some(pid) = now.fork_runner(&self.instance, Some(self.number)) else { return Err(killed()) };
            let boot = now.hosts[&self.instance].boot();
            identity(pid, boot)
        };
        {
            self.operates_or_ends().await;
            let mut now = self.world.now();
            if slow.is_zero() {
                now.executed(&self.instance, process.pid);
            } else {
                now.trace.count("exec of the runner is slow");
                now.freeze(&self.instance, self.number, slow);
                let executed = Happening::Host(Happens::Executed { pid: process.pid });
                now.later(&self.instance, slow, executed);
            }
        }
        sleep(slow).await;
        Ok((process, Process(process)))
    }

    fn find(&mut self, earlier: &Identity) -> io::Result<Option<Process>> {
        Ok(self.runs(earlier).then_some(Process(*earlier)))
    }

    fn has_exited(&self, process: &Process, _: bool) -> bool {
        !self.runs(&process.0)
    }

    async fn exited(&self, process: &Process, _: bool) {
        self.until_exit(&process.0).await;
    }

    fn remember_jobs(&self, process: &mut Process) {
        if let Ok(mut now) = self.operates()
            && let Some(facts) = now.facts(&self.instance, process.0.pid)
        {
            facts.forced_by = Some(self.number);
        }
    }

    async fn signal(&self, process: &mut Process, _: bool, signal: Signal) -> io::Result<()> {
        self.sends(&process.0, signal).await
    }

    async fn end(&self, process: Process, is_earlier: bool, is_forced: bool) -> Exit {
        let delay = {
            self.operates_or_ends().await;
            let mut now = self.world.now();
            let leftovers = now.hosts.get(&self.instance).is_some_and(|host| host.leftovers);
            let limit = match (leftovers && is_forced, now.random.percent(10)) {
                (true, _) => 10_000,
                (false, true) => 2_000,
                (false, false) => 5,
            };
            now.random.millis(1, limit)
        };
        sleep(delay).await;
        self.operates_or_ends().await;
        let mut now = self.world.now();
        let Some(host) = now.hosts.get_mut(&self.instance) else { return Exit::Unknown };
        if is_forced {
            host.leftovers = false;
        }
        let exit = host.ended.as_ref().filter(|ended| ended.pid() == process.0.pid);
        exit.and_then(super::exit::Ended::exit).filter(|_| !is_earlier).unwrap_or(Exit::Unknown)
    }
}

impl OfUnit for Seen {
    type Process = Process;

    fn hold(&self, pid: u32) -> io::Result<Process> {
        let boot = self.boot_id()?;
        let process = identity(pid, boot);
        if self.runs(&process) { Ok(Process(process)) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn hold_same(&self, identity: &Identity) -> io::Result<Option<Process>> {
        Ok(self.runs(identity).then_some(Process(*identity)))
    }

    fn has_exited(&self, process: &Process) -> bool {
        !self.runs(&process.0)
    }

    async fn exited(&self, process: &Process) {
        self.until_exit(&process.0).await;
    }

    async fn signal(&self, _: u32, process: &Process, signal: Signal) -> io::Result<()> {
        self.sends(&process.0, signal).await
    }

    fn identity(&self, pid: u32) -> io::Result<Identity> {
        Ok(OfUnit::hold(self, pid)?.0)
    }

    fn boot_id(&self) -> io::Result<BootId> {
        let now = self.world.now();
        now.hosts.get(&self.instance).map(super::Host::boot).ok_or_else(killed)
    }

    fn age(&self, pid: u32) -> Duration {
        let mut now = self.world.now();
        now.runner(&self.instance, pid).map(|runner| runner.started.elapsed()).unwrap_or_default()
    }

    fn is_before_exec(&self, pid: u32) -> bool {
        let mut now = self.world.now();
        let runner = now.runner(&self.instance, pid);
        runner.is_none_or(|runner| runner.mode == super::super::runner::Mode::BeforeExec)
    }

    async fn systemctl(&self, words: &[&str], limit: Duration) -> io::Result<String> {
        self.is_free().await;
        let (until, begins) = {
            self.operates_or_ends().await;
            let mut now = self.world.now();
            (Instant::now() + limit, now.random.millis(1, 20))
        };
        sleep(begins).await;
        let (silent, arrives) = {
            let mut now = self.world.now();
            let arrives = now.random.percent(50);
            (now.unit(&self.instance).and_then(|unit| unit.silent_until()), arrives)
        };
        if let Some(silent) = silent {
            // systemd may have read the request before its silence.
            if words[0] == "start" && silent >= until && arrives {
                self.world.now().at(&self.instance, silent, Happening::Host(Happens::UnitStarts));
            }
            self.awaits_systemd(true);
            sleep_until(silent.min(until)).await;
            self.awaits_systemd(false);
            if silent >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "systemd does not respond"));
            }
        }
        match words[0] {
            "show" => {
                self.operates_or_ends().await;
                let now = self.world.now();
                now.hosts.get(&self.instance).and_then(super::Host::shows_unit).ok_or_else(killed)
            }
            "start" => {
                self.operates_or_ends().await;
                self.world.now().unit_starts(&self.instance);
                self.until_started(until).await;
                Ok(String::new())
            }
            "stop" => {
                self.operates_or_ends().await;
                let mut now = self.world.now();
                now.trace.count("the wrapper stops the unit of a drained runner");
                now.unit_stops(&self.instance, false);
                Ok(String::new())
            }
            _ => Ok(String::new()),
        }
    }

    fn exists(&self, _: &Path) -> bool {
        let now = self.world.now();
        let Some(host) = now.hosts.get(&self.instance) else { return false };
        let later = host.wrapper.iter().flat_map(|wrapper| wrapper.later.iter().rev());
        let mut later = later.filter_map(|later| match later {
            Later::Closed(closed) => Some(*closed),
            Later::Written(_) => None,
        });
        let is_closed = matches!(&host.owner, Owner::Unit(unit) if unit.is_closed);
        later.next().unwrap_or(is_closed)
    }

    fn create(&self, _: &Path) -> io::Result<()> {
        let mut now = self.operates().map_err(|Killed| killed())?;
        if now.changes_gate(&self.instance, self.number, true) { Ok(()) } else { Err(no_space()) }
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        let mut now = self.operates().map_err(|Killed| killed())?;
        if now.changes_gate(&self.instance, self.number, false) { Ok(()) } else { Err(no_space()) }
    }

    fn read(&self, _: &Path) -> Option<Vec<u8>> {
        let now = self.world.now();
        match &now.hosts.get(&self.instance)?.owner {
            Owner::Unit(unit) => unit.exit_record(),
            Owner::Child(_) => None,
        }
    }
}

impl Seen {
    fn awaits_systemd(&self, awaits: bool) {
        if let Some(wrapper) = self.world.now().wrapper(&self.instance, self.number) {
            wrapper.awaits_systemd = awaits;
        }
    }

    /// Waits for the process of a start.
    async fn until_started(&self, until: Instant) {
        loop {
            let starts = {
                let mut now = self.world.now();
                now.unit(&self.instance).and_then(|unit| match unit.phase() {
                    Phase::Starting { until } => Some(until),
                    _ => None,
                })
            };
            match starts {
                Some(at) if Instant::now() < until => {
                    sleep_until(at.min(until).max(Instant::now() + Duration::from_millis(1))).await;
                }
                _ => return,
            }
        }
    }
}

impl StateFile for Seen {
    fn exists(&self) -> bool {
        let now = self.world.now();
        let Some(host) = now.hosts.get(&self.instance) else { return false };
        let is_later = |later: &Later| matches!(later, Later::Written(_));
        host.file.exists() || host.wrapper.iter().any(|wrapper| wrapper.later.iter().any(is_later))
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let mut now = self.operates().map_err(|Killed| killed())?;
        if now.writes(&self.instance, self.number, text) { Ok(()) } else { Err(no_space()) }
    }
}

/// The callbacks of a wrapper.
pub(super) struct Surroundings(pub(super) Seen);

impl grit_wrapper::supervise::Surroundings for Surroundings {
    fn send(&mut self, callback: Callback, completion: Completion) {
        let Seen { instance, number, .. } = &self.0;
        if let Ok(mut now) = self.0.operates() {
            now.callback_sent(instance, *number, callback, completion);
        }
    }

    fn count(&mut self, _: EndedStop) {}

    fn exited(&mut self, _: Exit, _: Option<&Stop>) {}
}

impl SimulatedRunner for Seen {
    fn config(&self) -> RunnerConfig {
        let now = self.world.now();
        now.hosts.get(&self.instance).map(|host| host.setup.config.clone()).expect("a host")
    }

    fn read(&self, pid: u32, page: Page) -> BoxFuture<'_, Option<String>> {
        async move {
            let begins = self.world.now().random.millis(0, 3);
            sleep(begins).await;
            let (page, lasts) = self.world.now().reads(&self.instance, self.number, pid, page);
            sleep(lasts).await;
            self.world.now().has_read(&self.instance, self.number);
            page
        }
        .boxed()
    }
}
