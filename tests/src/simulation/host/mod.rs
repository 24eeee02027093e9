//! The model of a host: the shell around the core of its wrapper, the runner process, the state file, and the service manager.
//!
//! The shell does what `supervise::Task` does, in the same order: the state is saved before the effects of a transition, except for SIGQUIT in a gap
//! between job requests. The wrapper can be killed between any two of these steps.
//!
//! The runner of a host belongs to its wrapper, which is its parent, or to systemd ([`unit`]), which asks the wrapper for a drain ([`exec_stop`]).
//!
//! [`promise`] has what the requests promise, and [`table`] the transitions: both are checked at every step.

pub(super) mod alone;
mod end;
mod exec_stop;
mod exit;
mod file;
mod kernel;
mod machine;
mod names;
pub(super) mod operator;
mod process;
pub(super) mod program;
mod promise;
mod reads;
mod signals;
mod start;
mod steps;
pub(super) mod table;
mod unit;

use std::{sync::Arc, time::Duration};

use grit_wrapper::supervise::{
    Callback, ChildInfo, Moment, Observation, Policy,
    process::{BootId, Identity},
};
use tokio::{sync::Notify, time::Instant};

use self::{
    exit::Ended,
    file::File,
    process::Facts,
    program::{OfDrain, Wrapper},
    promise::Promise,
    start::Service,
    unit::Unit,
};
use super::{
    gitlab::system_id_of,
    random::Random,
    runner::{Runner, Setup},
    scenario::Owners,
    world::{Happening, Inner},
};

/// What happens on a host by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happens {
    /// The exec of the runner was slow, and is done.
    Executed {
        pid: u32,
    },
    /// The thread of the wrapper goes on.
    Thaws {
        wrapper: u32,
    },
    /// A probe has shown this of the runner.
    Shown {
        wrapper: u32,
        pid: u32,
        shown: Observation,
    },
    /// The phase of the unit with this number ends.
    UnitTurns {
        turn: u32,
    },
    /// The unit is started by systemd at the boot, or by a request that has reached it late.
    UnitStarts,
    /// The service of the wrapper is started again.
    WrapperIsBack,
    /// The command of `ExecStop=` asks the wrapper to drain this runner.
    ExecStops {
        pid: u32,
        failures: u32,
    },
    Called {
        wrapper: u32,
        callback: Callback,
    },
    BrokenFileRemoved,
    Boots,
    ShutdownEnds {
        is_limit: bool,
    },
    /// The deadline of a stop was over some time ago.
    DeadlineIsOver {
        pid: u32,
    },
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) address: String,
    boots: u32,
    owner: Owner,
    pub(super) wrapper: Option<Wrapper>,
    wrappers: u32,
    /// The wrapper is killed after this number of steps.
    pub(super) kill_in: Option<u32>,
    file: File,
    /// The content before the last change.
    older_file: File,
    /// Why the file may lack what the wrapper has saved.
    file_lost: Option<&'static str>,
    disk_works: bool,
    /// Until then, a write of the state file takes some time.
    slow_until: Instant,
    pub(super) runner: Option<Runner>,
    /// The number of its runners, with the earlier ones.
    runners: u32,
    facts: Option<Facts>,
    /// Runners that no wrapper has.
    strays: Vec<Runner>,
    /// The runner that has exited last, before a wrapper has read how.
    ended: Option<Ended>,
    /// Processes of aborted jobs are running.
    leftovers: bool,
    crashes_left: u32,
    policy: Policy,
    drain_timeout: Option<Duration>,
    service: Service,
    is_off: bool,
    shuts_down: bool,
    /// The state file is not below `/run`.
    pub(super) keeps_file: bool,
    /// The configuration of the runner.
    setup: Setup,
    /// What restarts the wrapper waits for some milliseconds only.
    restarts_quickly: bool,
    /// When a late request has arrived.
    late_at: Option<Instant>,
    /// A process has ended.
    news: Arc<Notify>,
    /// The callbacks of its drains.
    callbacks: Vec<OfDrain>,
    /// When the runner's handlers are installed after its start.
    loads: Duration,
    pub(super) promise: Promise,
    /// The promise that the state file has.
    saved_promise: Promise,
    /// When a wrapper has started, or its task has been free again.
    free_since: Option<Instant>,
    /// The last request was answered.
    is_answered: bool,
    /// Since the last drain of a client was accepted, there was a moment without a runner: its exit is evidence.
    pub(super) is_drained: bool,
    /// Since when Terraform has the evidence that its runner has exited. Docs, "Limits": "drained instances stay until all drains of the apply have
    /// succeeded".
    pub(super) evidence: Option<Instant>,
    /// Why a drain that was complete may not hold any more.
    pub(super) forgotten: Option<&'static str>,
}

/// Who owns the runner process.
#[derive(Debug)]
enum Owner {
    /// The wrapper is its parent.
    Child(Child),
    /// systemd is its parent.
    Unit(Unit),
}

#[derive(Debug)]
struct Child {
    /// The wrapper is the first process of a container, whose other processes end with it.
    is_container: bool,
    /// The runner's command changes its user, after which the kernel sends no signal at the death of the parent.
    changes_user: bool,
}

impl Owner {
    fn new(owners: Owners, random: &mut Random) -> Self {
        let is_unit = random.percent(50);
        let is_unit = match owners {
            Owners::Both => is_unit,
            Owners::Wrappers => false,
            Owners::Units => true,
        };
        match is_unit {
            true => Self::Unit(Unit::new(random)),
            false => {
                let (is_container, changes_user) = (random.percent(20), random.percent(3));
                Self::Child(Child { is_container, changes_user })
            }
        }
    }
}

impl Inner {
    pub(super) fn create_host(&mut self, instance: &str, name: &str, address: &str) {
        // As the cloud of the lab names them.
        let used = self.names.entry(name.to_owned()).or_default();
        *used += 1;
        let name = if *used == 1 { name.to_owned() } else { format!("{name}.{used}") };
        let owners = self.owners;
        let random = &mut self.random;
        let owner = Owner::new(owners, random);
        let is_unit = matches!(owner, Owner::Unit(_));
        let has_rare_settings = instance == alone::INSTANCE;
        let request_gap_timeout = match random.percent(3) {
            true => Duration::ZERO,
            false if has_rare_settings && random.percent(50) => random.millis(300, 8_000),
            false => Policy::REQUEST_GAP_TIMEOUT,
        };
        let policy = Policy {
            request_gap_timeout,
            termination_timeout: (has_rare_settings && random.percent(30))
                .then(|| random.millis(500, 10_000)),
            // `--unit` refuses it.
            leave_when_stopped: random.percent(10) && !is_unit,
            by_unit: is_unit,
            ..Policy::default()
        };
        let setup = Setup::new(&self.gitlab.settings, &system_id_of(instance), random);
        let host = Host {
            name: name.clone(),
            address: address.to_owned(),
            boots: 1,
            owner,
            wrapper: None,
            wrappers: 0,
            kill_in: None,
            file: File::Missing,
            older_file: File::Missing,
            file_lost: None,
            disk_works: true,
            slow_until: Instant::now(),
            runner: None,
            runners: 0,
            facts: None,
            strays: Vec::new(),
            ended: None,
            leftovers: false,
            crashes_left: 0,
            policy,
            drain_timeout: random.percent(30).then(|| random.millis(1_000, 60_000)),
            service: Service::Up,
            is_off: false,
            shuts_down: false,
            keeps_file: random.percent(if is_unit { 10 } else { 40 }),
            setup,
            restarts_quickly: random.percent(30),
            late_at: None,
            news: Arc::default(),
            callbacks: Vec::new(),
            loads: random.millis(50, 2_900),
            promise: Promise::default(),
            saved_promise: Promise::default(),
            free_since: None,
            is_answered: false,
            is_drained: false,
            evidence: None,
            forgotten: None,
        };
        self.hosts.insert(instance.to_owned(), host);
        self.addresses.insert(address.to_owned(), instance.to_owned());
        self.log(instance, format!("instance of {name} created at {address}"));
        self.traces.add_host(&name, "instance created");
        self.programs_start(instance, 500);
    }

    /// The programs of a host start after its boot, in any order.
    fn programs_start(&mut self, instance: &str, earliest: u64) {
        let boot = self.random.millis(earliest, 20_000);
        self.later(instance, boot, Happening::WrapperStarts);
        if self.is_unit(instance) {
            let boot = self.random.millis(earliest, 20_000);
            self.later(instance, boot, Happening::Host(Happens::UnitStarts));
        }
    }

    pub(super) fn runner(&mut self, host: &str, pid: u32) -> Option<&mut Runner> {
        let host = self.hosts.get_mut(host)?;
        host.runner.as_mut().into_iter().chain(&mut host.strays).find(|runner| runner.pid == pid)
    }

    /// A request of a client was accepted.
    pub(super) fn accepted(&mut self, instance: &str, is_forceful: bool) {
        self.log(instance, if is_forceful { "forceful drain accepted" } else { "drain accepted" });
        if instance.starts_with(machine::OTHER) {
            // `docs/resources/runner_drain.md`, "Limits": the provider detects this only if both drains are in one configuration.
            self.trace.count("limit: a drain reached a host of another owner with the address of a lost one");
        }
    }

    /// A request arrives that was on its way for long.
    pub(super) fn late_request_arrives(&mut self, instance: &str) {
        if let Some(host) = self.hosts.get_mut(instance) {
            host.late_at = Some(Instant::now());
        }
    }

    /// What happens on a host by itself.
    pub(super) fn happens(&mut self, instance: &str, what: Happens) {
        match what {
            Happens::Executed { pid } => self.slow_exec_ends(instance, pid),
            Happens::Thaws { wrapper } => self.thaws(instance, wrapper),
            Happens::Shown { wrapper, pid, shown } => self.is_shown(instance, wrapper, pid, shown),
            Happens::UnitTurns { turn } => self.unit_turns(instance, turn),
            Happens::UnitStarts => self.unit_starts(instance),
            Happens::WrapperIsBack => self.wrapper_service_starts(instance),
            Happens::ExecStops { pid, failures } => self.exec_stops(instance, pid, failures),
            Happens::Called { wrapper, callback } => self.callback_ends(instance, wrapper, Some(&callback)),
            Happens::BrokenFileRemoved => self.broken_file_removed(instance),
            Happens::Boots => self.boots(instance),
            Happens::DeadlineIsOver { pid } => self.check_deadline(instance, pid),
            Happens::ShutdownEnds { is_limit } => self.shutdown_ends(instance, is_limit),
        }
    }

    pub(super) fn disk(&mut self, instance: &str, works: bool) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.disk_works = works;
        self.log(instance, if works { "disk has space" } else { "disk is full" });
        self.trace.count(if works { "disk has space" } else { "disk is full" });
    }
}

impl Inner {
    fn is_unit(&self, instance: &str) -> bool {
        self.hosts.get(instance).is_some_and(Host::is_unit)
    }

    fn unit(&mut self, instance: &str) -> Option<&mut Unit> {
        self.hosts.get_mut(instance)?.unit()
    }

    /// Something has happened that a run with real processes shows as well.
    pub(super) fn trace_host(&mut self, instance: &str, what: &str) {
        if let Some(host) = self.hosts.get(instance) {
            self.traces.add_host(&host.name, what);
        }
    }

    /// The same about a job.
    pub(in crate::simulation) fn trace_job(&mut self, instance: &str, job: u64, what: &str) {
        if let Some(host) = self.hosts.get(instance) {
            self.traces.add_job(&host.name, job, what);
        }
    }
}

impl Host {
    /// The wrapper ends, perhaps with a state that it could not save.
    fn wrapper_is_gone(&mut self) -> Option<Wrapper> {
        let wrapper = self.wrapper.take()?;
        if wrapper.supervision.save_error.is_some() && wrapper.written.is_none() {
            if let Some(facts) = &mut self.facts {
                facts.is_quit_unsaved |= facts.quit.is_some();
            }
            self.file_lost = Some(UNWRITTEN);
        }
        if let Some(ended) = &mut self.ended {
            ended.parent_is_gone();
        }
        Some(wrapper)
    }

    /// systemd owns its runner.
    pub(super) fn is_unit(&self) -> bool {
        matches!(self.owner, Owner::Unit(_))
    }

    fn unit(&mut self) -> Option<&mut Unit> {
        match &mut self.owner {
            Owner::Unit(unit) => Some(unit),
            Owner::Child(_) => None,
        }
    }

    /// Whether it is powered off: nothing answers at its address.
    pub(super) fn is_off(&self) -> bool {
        self.is_off
    }

    /// The runner as its wrapper names it.
    fn child(&self) -> Option<ChildInfo> {
        let runner = self.runner.as_ref()?;
        let process = identity(runner.pid, self.boot());
        Some(ChildInfo { process, started: Moment::now() - runner.started.elapsed() })
    }

    /// Whether this process of the runner has exited, or was never there.
    fn has_exited(&self, child: ChildInfo) -> bool {
        self.child().is_none_or(|running| running.process != child.process)
    }

    /// Its runner has not ended after a stop that was accepted.
    pub(super) fn is_leaving(&self) -> bool {
        self.promise.accepted && self.runner.is_some() || self.promise.leaving && self.wrapper.is_some()
    }

    /// When its runner was started, if it has one.
    pub(super) fn runner_started(&self) -> Option<Instant> {
        self.runner.as_ref().map(|runner| runner.started)
    }

    /// A runner that was started again is not healthy for a time: `docs/wrapper/health.md`.
    pub(super) fn was_restarted(&self) -> bool {
        self.runners > 1 && self.runner_started().is_some_and(|started| started.elapsed() < RESTARTED)
    }

    /// Why a runner runs after a drain that was complete.
    pub(super) fn why_started(&self) -> Option<&'static str> {
        self.forgotten.filter(|_| self.is_drained)
    }

    /// The state of its wrapper as the table names it, and when the timer of the wrapper is due.
    pub(super) fn aimed_state(&self) -> Option<(&'static str, Option<Instant>)> {
        self.wrapper.as_ref()?.table_state(&self.policy)
    }

    fn boot(&self) -> BootId {
        BootId::try_from(self.boot_text()).expect("a UUID")
    }

    fn boot_text(&self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.boots)
    }
}

/// Less than 60 s ago, and a probe.
const RESTARTED: Duration = Duration::from_secs(80);

/// Why the state file lacks what a wrapper has saved.
const UNWRITTEN: &str = "the state file could not be written";

fn identity(pid: u32, boot: BootId) -> Identity {
    Identity { pid, start_ticks: u64::from(pid), boot }
}
