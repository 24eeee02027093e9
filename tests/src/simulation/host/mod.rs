//! The model of a host: the shell around the core of its wrapper, the runner process, the state file, and the service manager.
//!
//! The shell does what `supervise::Task` does, in the same order: the state is saved before the effects of a transition, except for SIGQUIT in a gap
//! between job requests. The wrapper can be killed between any two of these steps.
//!
//! [`promise`] has what the requests promise, and [`table`] the transitions: both are checked at every step.

pub(super) mod alone;
mod callbacks;
mod changes;
mod end;
mod file;
mod machine;
mod names;
pub(super) mod operator;
mod probe;
mod process;
mod promise;
mod signals;
mod spawn;
mod start;
pub(super) mod table;
mod wrapper;

use std::{collections::VecDeque, time::Duration};

use grit_proto::wrapper_v1 as v1;
use grit_wrapper::supervise::{
    Callback, ChildInfo, Event, Policy, RestartWhen, Supervision,
    process::{BootId, Exit, Identity, Signal},
};
use tokio::time::Instant;

pub(super) use self::changes::Changes;
use self::{file::File, process::Facts, promise::Promise, start::Service, wrapper::Busy};
use super::{
    gitlab::system_id_of,
    runner::{Runner, Setup},
    world::{Happening, Inner},
};

/// What happens on a host by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happens {
    /// The exec of the runner was slow, and is done.
    Executed {
        wrapper: u32,
        child: ChildInfo,
    },
    /// The wrapper has read how the runner ended.
    ExitRead {
        wrapper: u32,
    },
    /// A wrapper that starts looks again for a process at the exec barrier.
    Finds {
        process: u32,
        until: Instant,
    },
    Called {
        wrapper: u32,
        callback: Callback,
    },
    /// A slow write of the state file has ended. The signal that waits for it is sent now.
    Written {
        wrapper: u32,
        signal: Option<Signal>,
    },
    UpgradePauses {
        wrapper: u32,
    },
    Upgrades {
        wrapper: u32,
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
    pub(super) wrapper: Option<Wrapper>,
    /// The number of programs, and of processes: an upgrade continues in the process.
    wrappers: u32,
    processes: u32,
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
    facts: Option<Facts>,
    /// Runners that no wrapper has.
    strays: Vec<Runner>,
    /// The runner that has exited, before its wrapper has read how.
    zombie: Option<(u32, Exit)>,
    /// Processes of aborted jobs are running.
    leftovers: bool,
    crashes_left: u32,
    policy: Policy,
    drain_timeout: Option<Duration>,
    service: Service,
    is_off: bool,
    shuts_down: bool,
    /// `Delegate=yes`.
    has_cgroup: bool,
    /// The state file is not below `/run`.
    keeps_file: bool,
    /// The configuration of the runner.
    setup: Setup,
    has_old_kernel: bool,
    restarts_quickly: bool,
    /// The changes of the status.
    pub(super) changes: Changes,
    /// Calls wait here for the task of the wrapper.
    pub(super) queue: Changes,
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

/// A wrapper process.
#[derive(Debug)]
pub(super) struct Wrapper {
    number: u32,
    process: u32,
    pub(super) supervision: Supervision,
    /// What its probes and its reads of the open requests have found.
    eyes: probe::Eyes,
    saves_again: bool,
    /// The content of the file, if it is known.
    written: Option<Supervision>,
    busy: Option<Busy>,
    waiting: VecDeque<Event>,
    /// When the first SIGTERM was answered.
    signalled: Option<Instant>,
}

impl Inner {
    pub(super) fn create_host(&mut self, instance: &str, name: &str, address: &str) {
        let random = &mut self.random;
        let restart = *random.pick(&[RestartWhen::Never, RestartWhen::OnFailure, RestartWhen::Always]);
        let has_rare_settings = instance == alone::INSTANCE;
        let request_gap_timeout = match random.percent(3) {
            true => Duration::ZERO,
            false if has_rare_settings && random.percent(50) => random.millis(300, 8_000),
            false => Policy::REQUEST_GAP_TIMEOUT,
        };
        let policy = Policy {
            restart,
            request_gap_timeout,
            termination_timeout: (has_rare_settings && random.percent(30))
                .then(|| random.millis(500, 10_000)),
            leave_when_stopped: random.percent(10),
            ..Policy::default()
        };
        let setup = Setup::new(&self.gitlab.settings, &system_id_of(instance), random);
        let host = Host {
            name: name.to_owned(),
            address: address.to_owned(),
            boots: 1,
            wrapper: None,
            wrappers: 0,
            processes: 0,
            kill_in: None,
            file: File::Missing,
            older_file: File::Missing,
            file_lost: None,
            disk_works: true,
            slow_until: Instant::now(),
            runner: None,
            facts: None,
            strays: Vec::new(),
            zombie: None,
            leftovers: false,
            crashes_left: 0,
            policy,
            drain_timeout: random.percent(30).then(|| random.millis(1_000, 60_000)),
            service: Service::Up,
            is_off: false,
            shuts_down: false,
            has_cgroup: random.percent(85),
            keeps_file: random.percent(40),
            setup,
            has_old_kernel: random.percent(20),
            restarts_quickly: random.percent(30),
            changes: Changes::default(),
            queue: Changes::default(),
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
        self.traces.add_host(name, "instance created");
        let boot = self.random.millis(500, 20_000);
        self.later(instance, boot, Happening::WrapperStarts);
    }

    pub(super) fn runner(&mut self, host: &str, pid: u32) -> Option<&mut Runner> {
        let host = self.hosts.get_mut(host)?;
        host.runner.as_mut().into_iter().chain(&mut host.strays).find(|runner| runner.pid == pid)
    }

    /// The status that a client receives.
    pub(super) fn status(&self, instance: &str) -> v1::Status {
        let Some(host) = self.hosts.get(instance) else { return v1::Status::default() };
        let Some(wrapper) = &host.wrapper else { return v1::Status::default() };
        let mut status = wrapper.eyes.probes.status(&wrapper.supervision);
        status.boot_id = host.boot_text();
        status
    }

    /// A request of a client was accepted.
    pub(super) fn accepted(&mut self, instance: &str, is_forceful: bool) {
        self.log(instance, if is_forceful { "forceful drain accepted" } else { "drain accepted" });
        if instance.starts_with(machine::OTHER) {
            // `docs/resources/runner_drain.md`, "Limits": the provider detects this only if both drains are in one configuration.
            self.trace.count("limit: a drain reached a host of another owner with the address of a lost one");
        }
    }

    pub(super) fn cancelled(&mut self, instance: &str) {
        self.log(instance, "drain cancelled, or runner started");
    }

    /// What happens on a host by itself.
    pub(super) fn happens(&mut self, instance: &str, what: Happens) {
        match what {
            Happens::Executed { wrapper, child } => self.slow_exec_ends(instance, wrapper, child),
            Happens::ExitRead { wrapper } => self.exit_is_read(instance, wrapper),
            Happens::Finds { process, until } => {
                let host = self.hosts.get(instance);
                if host
                    .is_some_and(|host| host.processes == process && host.wrapper.is_none() && !host.is_off)
                {
                    self.wrapper_finds(instance, process, until);
                }
            }
            Happens::Called { wrapper, callback } => {
                self.of_wrapper(instance, wrapper, Event::CallbackFinished(callback));
            }
            Happens::Written { wrapper, signal } => self.written(instance, wrapper, signal),
            Happens::UpgradePauses { wrapper } => self.upgrade_pauses(instance, wrapper),
            Happens::Upgrades { wrapper } => self.upgrades(instance, wrapper),
            Happens::BrokenFileRemoved => self.broken_file_removed(instance),
            Happens::Boots => self.boots(instance),
            Happens::DeadlineIsOver { pid } => self.check_deadline(instance, pid),
            Happens::ShutdownEnds { is_limit } => self.shutdown_ends(instance, is_limit),
        }
    }

    fn of_wrapper(&mut self, instance: &str, number: u32, event: Event) {
        if self.wrapper(instance, number).is_some() {
            let _answer = self.deliver(instance, event);
        }
    }

    pub(super) fn disk(&mut self, instance: &str, works: bool) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.disk_works = works;
        self.log(instance, if works { "disk has space" } else { "disk is full" });
        self.trace.count(if works { "disk has space" } else { "disk is full" });
    }

    fn changed(&mut self, instance: &str) {
        if self.hosts.get(instance).is_some_and(|host| host.changes.is_watched()) {
            let status = self.status(instance);
            if let Some(host) = self.hosts.get_mut(instance) {
                host.changes.report(status);
            }
        }
    }

    /// A call waits for the next change of the status.
    pub(super) fn watch(&mut self, instance: &str) -> Option<Changes> {
        let status = self.status(instance);
        Some(self.hosts.get_mut(instance)?.changes.watch(status))
    }
}

impl Inner {
    /// Something has happened that a run with real processes shows as well.
    pub(super) fn trace_host(&mut self, instance: &str, what: &str) {
        if let Some(host) = self.hosts.get(instance) {
            self.traces.add_host(&host.name, what);
        }
    }
}

impl Host {
    /// The wrapper ends, perhaps with a state that it could not save.
    fn wrapper_is_gone(&mut self) -> Option<Wrapper> {
        let wrapper = self.wrapper.take()?;
        if wrapper.supervision.save_error.is_some() {
            if let Some(facts) = &mut self.facts {
                facts.is_quit_unsaved |= facts.quit.is_some();
            }
            self.file_lost.get_or_insert("the state file could not be written");
        }
        Some(wrapper)
    }

    fn end_changes(&mut self) {
        self.changes.end();
        self.queue.end();
    }

    /// Its runner has not ended after a stop that was accepted.
    pub(super) fn is_leaving(&self) -> bool {
        self.promise.accepted && self.runner.is_some() || self.promise.leaving && self.wrapper.is_some()
    }

    /// When its runner was started, if it has one.
    pub(super) fn runner_started(&self) -> Option<Instant> {
        self.runner.as_ref().map(|runner| runner.started)
    }

    /// Why a runner runs after a drain that was complete.
    pub(super) fn why_started(&self) -> Option<&'static str> {
        self.forgotten.filter(|_| self.is_drained)
    }

    /// The state of its wrapper as the table names it, and when the timer of the wrapper is due.
    pub(super) fn aimed_state(&self) -> Option<(&'static str, Option<Instant>)> {
        self.wrapper.as_ref()?.table_state(&self.policy)
    }

    /// The task of its wrapper does not read its queue now.
    pub(super) fn is_busy(&self) -> bool {
        self.wrapper.as_ref().is_some_and(|wrapper| wrapper.busy.is_some())
    }

    fn boot(&self) -> BootId {
        BootId::try_from(self.boot_text()).expect("a UUID")
    }

    fn boot_text(&self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.boots)
    }
}

fn identity(pid: u32, boot: BootId) -> Identity {
    Identity { pid, start_ticks: u64::from(pid), boot }
}
