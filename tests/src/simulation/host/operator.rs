//! What an operator, the service manager and other programs do on a host, besides Terraform.

use std::time::Duration;

use grit_wrapper::supervise::{Callback, Cancel, Event, Mode as StopMode, Stop, StopId, process::Signal};
use tokio::time::Instant;

use super::{
    super::{
        fault::Fault,
        random::Random,
        world::{Happening, Inner},
    },
    Happens,
    file::{File, REMOVED},
    start::Service,
};

/// `signals::DUPLICATE_WINDOW`.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(500);

/// An action on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulation) enum Action {
    Drain {
        id: u8,
        is_forceful: bool,
        deadline: Option<Duration>,
        has_callback: bool,
    },
    Cancel,
    Start,
    /// SIGHUP to the wrapper.
    Reload,
    /// SIGTERM to the wrapper.
    Terminate,
    ServiceStops {
        restarts: bool,
    },
    ServiceStarts,
    /// SIGUSR1 to the wrapper.
    Upgrade,
    /// The host is shut down: the service is stopped within this time, and the host starts again.
    Reboot {
        limit: Duration,
    },
    PowerFails {
        lasts: Duration,
    },
    FileRemoved,
    FileBroken,
    /// Another process sends SIGTERM, or SIGQUIT, to the runner.
    RunnerTerminated,
    RunnerQuit,
    /// The runner runs as another user.
    SignalsRefused {
        lasts: Duration,
    },
    /// A write of the state file takes up to two seconds.
    DiskSlow {
        lasts: Duration,
    },
    /// The jobs of the runner need longer to abort than the wrapper waits.
    CleanupHangs,
    /// The runner exits with code 0 at this moment.
    RunnerExits,
    /// A callback that was sent is finished at this moment.
    CallbackEnds,
    /// The next starts of the runner fail.
    Crashes {
        starts: u32,
    },
    CloudDestroys,
    /// A host of another owner gets an address of a destroyed host.
    AddressReused,
}

impl Action {
    /// An action in a rollout.
    pub(in crate::simulation) fn in_rollout(random: &mut Random) -> Self {
        match random.below(30) {
            0 => Self::CloudDestroys,
            1 => Self::AddressReused,
            _ => Self::new(random),
        }
    }

    /// A request that comes just after another one.
    fn in_burst(random: &mut Random) -> Self {
        match random.below(14) {
            0..4 => Self::Drain {
                id: u8::try_from(random.below(3)).unwrap_or_default(),
                is_forceful: random.percent(40),
                deadline: random.percent(30).then(|| random.millis(10, 4_000)),
                has_callback: random.percent(30),
            },
            4..6 => Self::Cancel,
            6..9 => Self::Start,
            9 => Self::Reload,
            10 => Self::Terminate,
            11 => Self::Upgrade,
            12 => Self::SignalsRefused { lasts: random.millis(100, 15_000) },
            _ => Self::RunnerTerminated,
        }
    }

    pub(in crate::simulation) fn new(random: &mut Random) -> Self {
        match random.below(32) {
            0..6 => Self::Drain {
                id: u8::try_from(random.below(3)).unwrap_or_default(),
                is_forceful: random.percent(30),
                deadline: random.percent(40).then(|| random.millis(10, 20_000)),
                has_callback: random.percent(30),
            },
            6..9 => Self::Cancel,
            9..13 => Self::Start,
            13..15 => Self::Reload,
            15..18 => Self::Terminate,
            18 => Self::ServiceStops { restarts: true },
            19 => Self::ServiceStops { restarts: false },
            20 => Self::ServiceStarts,
            21..24 => Self::Upgrade,
            24 => Self::Reboot { limit: random.millis(1_000, 120_000) },
            25 => Self::PowerFails { lasts: random.millis(1_000, 400_000) },
            26 => Self::FileRemoved,
            27 => Self::FileBroken,
            28 => Self::RunnerTerminated,
            29 => Self::RunnerQuit,
            30 => Self::SignalsRefused { lasts: random.millis(100, 40_000) },
            _ => Self::Crashes { starts: u32::try_from(random.below(8)).unwrap_or_default() + 1 },
        }
    }
}

impl Inner {
    pub(in crate::simulation) fn act(&mut self, instance: &str, action: Action) {
        self.trace.count(name(action));
        self.log(instance, format!("operator: {action:?}"));
        match action {
            Action::Drain { id, is_forceful, deadline, has_callback } => {
                let mode = if is_forceful { StopMode::Forceful } else { StopMode::Graceful };
                let id = format!("op-{id}");
                let callbacks: Vec<_> = has_callback.then(callback).into_iter().collect();
                let stop = Stop { callbacks, ..Stop::new(id.as_str(), mode) };
                let _answer = self.deliver(instance, Event::Stop(stop.within(deadline)));
            }
            Action::Cancel => drop(self.deliver(instance, Event::Cancel(Cancel::default()))),
            Action::Start => {
                // Also where the wrapper is killed before it answers.
                if let Some(host) = self.hosts.get_mut(instance).filter(|host| host.promise.accepted) {
                    host.forgotten = Some("an operator started the runner");
                }
                let _answer = self.deliver(instance, Event::Start);
            }
            Action::Reload => drop(self.deliver(instance, Event::Reload)),
            Action::Terminate => self.wrapper_terminated(instance),
            Action::ServiceStops { restarts } => self.service_stops(instance, restarts),
            Action::ServiceStarts => self.service_starts(instance),
            Action::Upgrade => self.upgrade(instance),
            Action::Reboot { limit } => self.reboots(instance, limit),
            Action::PowerFails { lasts } => self.power_fails(instance, Some(lasts)),
            Action::FileRemoved => self.file_is_lost(instance, File::Missing),
            Action::FileBroken => self.file_is_lost(instance, File::Broken),
            Action::RunnerTerminated => self.disturbed(instance, Signal::Terminate),
            Action::RunnerQuit => self.disturbed(instance, Signal::Drain),
            Action::SignalsRefused { lasts } => {
                if let Some(facts) = self.hosts.get_mut(instance).and_then(|host| host.facts.as_mut()) {
                    facts.refuses_until = Instant::now() + lasts;
                }
            }
            Action::DiskSlow { lasts } => {
                if let Some(host) = self.hosts.get_mut(instance) {
                    host.slow_until = Instant::now() + lasts;
                }
            }
            Action::CleanupHangs => {
                let runner = self.hosts.get_mut(instance).and_then(|host| host.runner.as_mut());
                if let Some(runner) = runner {
                    runner.cleanup = Duration::from_secs(300);
                }
            }
            Action::RunnerExits => self.runner_exits_well(instance),
            Action::CallbackEnds => self.callback_ends(instance),
            Action::Crashes { starts } => {
                if let Some(host) = self.hosts.get_mut(instance) {
                    host.crashes_left = starts;
                }
            }
            Action::CloudDestroys => self.cloud_destroys(instance),
            Action::AddressReused => self.address_reused(),
        }
    }

    /// `signals::SignalState::received`.
    fn wrapper_terminated(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let drain_timeout = host.drain_timeout;
        let Some(wrapper) = &mut host.wrapper else { return };
        let number = wrapper.number;
        let stop = |mode| Stop::new(StopId::Signal, mode);
        match wrapper.signalled {
            None => {
                let leave = Event::Leave(stop(StopMode::Graceful).within(drain_timeout));
                if self.deliver(instance, leave).is_ok()
                    && let Some(wrapper) = self.wrapper(instance, number)
                {
                    wrapper.signalled = Some(Instant::now());
                }
            }
            Some(first) if first.elapsed() >= DUPLICATE_WINDOW => {
                self.trace.count("SIGTERM to the wrapper, repeated");
                let _answer = self.deliver(instance, Event::Stop(stop(StopMode::Forceful)));
            }
            Some(_) => self.trace.count("SIGTERM to the wrapper within the window of duplicates"),
        }
    }

    pub(super) fn service_stops(&mut self, instance: &str, restarts: bool) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if host.is_off {
            return;
        }
        match (host.service, host.wrapper.is_some()) {
            (_, true) => {
                host.service = Service::Stopping { restarts };
                self.wrapper_terminated(instance);
            }
            // The service has no process: it waits for its restart.
            (Service::Up, false) if !restarts => host.service = Service::Stopped,
            (Service::Stopped, false) if restarts => self.service_starts(instance),
            (_, false) => {}
        }
    }

    pub(super) fn service_starts(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        match host.service {
            Service::Stopped if !host.is_off => {
                host.service = Service::Up;
                self.later(instance, Duration::from_millis(20), Happening::WrapperStarts);
            }
            // The job of systemd replaces that of the stop, and the service starts after it.
            Service::Stopping { .. } => host.service = Service::Stopping { restarts: true },
            Service::Up | Service::Stopped => {}
        }
    }

    fn upgrade(&mut self, instance: &str) {
        let number = self.number(instance);
        if number == 0 {
            return;
        }
        if self.random.percent(10) {
            return self.trace.count("upgrade refused: the new binary is damaged");
        }
        let check = self.random.millis(5, 500);
        self.later(instance, check, Happening::Host(Happens::UpgradePauses { wrapper: number }));
    }

    fn file_is_lost(&mut self, instance: &str, file: File) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        // Nothing but an operator writes an invalid file. The way out of it is only for a host whose runner can be found.
        if matches!(file, File::Broken) && !host.has_cgroup {
            return;
        }
        host.file = file;
        host.file_lost = Some(REMOVED);
        if matches!(host.file, File::Broken) {
            let delay = self.random.millis(5_000, 60_000);
            self.later(instance, delay, Happening::Host(Happens::BrokenFileRemoved));
        }
    }

    pub(super) fn broken_file_removed(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if matches!(host.file, File::Broken) {
            host.file = File::Missing;
            self.log(instance, "the operator removes the invalid state file");
        }
    }

    /// Faults of the wrapper, the host and the runner, for a run without Terraform.
    pub(in crate::simulation) fn fault_of_a_host(random: &mut Random, is_in_burst: bool) -> Fault {
        match random.below(12) {
            0 => Fault::KillWrapper,
            1..3 => Fault::KillWrapperIn { steps: u32::try_from(random.below(16)).unwrap_or_default() },
            3 => Fault::DiskFails { lasts: random.millis(100, 20_000) },
            4 if random.percent(30) => Fault::RunnerCrashes,
            4 if random.percent(30) => Fault::ResetHost,
            _ if is_in_burst => Fault::Host(Action::in_burst(random)),
            _ => Fault::Host(Action::new(random)),
        }
    }
}

/// A wrapper that is killed in the first steps of a drain, and a request to the next one. With the pauses before them.
pub(in crate::simulation) fn killed_in_drain(random: &mut Random) -> [(Duration, Fault); 3] {
    let steps = u32::try_from(random.below(14)).unwrap_or_default();
    let drain = |is_forceful| Action::Drain { id: 0, is_forceful, deadline: None, has_callback: false };
    let second = if random.percent(70) { drain(true) } else { Action::Cancel };
    [
        (Duration::ZERO, Fault::KillWrapperIn { steps }),
        (Duration::from_millis(1), Fault::Host(drain(false))),
        (random.millis(50, 700), Fault::Host(second)),
    ]
}

fn callback() -> Callback {
    let none = std::collections::HashMap::new();
    Callback::new("http://ci.example/done", "POST", &none).expect("a callback")
}

fn name(action: Action) -> &'static str {
    match action {
        Action::Drain { is_forceful: true, .. } => "operator: forceful drain",
        Action::Drain { deadline: Some(_), .. } => "operator: drain with a deadline",
        Action::Drain { .. } => "operator: drain",
        Action::Cancel => "operator: cancel",
        Action::Start => "operator: start",
        Action::Reload => "operator: SIGHUP",
        Action::Terminate => "operator: SIGTERM to the wrapper",
        Action::ServiceStops { restarts: true } => "operator: systemctl restart",
        Action::ServiceStops { restarts: false } => "operator: systemctl stop",
        Action::ServiceStarts => "operator: systemctl start",
        Action::Upgrade => "operator: upgrade",
        Action::Reboot { .. } => "host: reboot",
        Action::PowerFails { .. } => "host: power failure",
        Action::FileRemoved => "host: state file removed",
        Action::FileBroken => "host: state file invalid",
        Action::RunnerTerminated => "runner: SIGTERM of another process",
        Action::RunnerQuit => "runner: SIGQUIT of another process",
        Action::SignalsRefused { .. } => "runner: signals are refused",
        Action::DiskSlow { .. } => "host: slow disk",
        Action::CleanupHangs => "runner: cleanup hangs",
        Action::RunnerExits => "runner: exits with code 0",
        Action::CallbackEnds => "operator: a callback is finished",
        Action::Crashes { .. } => "runner: next starts fail",
        Action::CloudDestroys => "host: destroyed by the cloud",
        Action::AddressReused => "host: address reused by another owner",
    }
}
