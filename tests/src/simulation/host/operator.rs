//! What an operator, the service manager and other programs do on a host, besides Terraform.

use std::time::Duration;

use grit_wrapper::supervise::{Callback, Mode as StopMode, Stop, StopId, process::Signal};
use tokio::time::Instant;

use super::{
    super::{
        fault::Fault,
        random::Random,
        world::{Happening, Inner},
    },
    Happens,
    file::{File, REMOVED},
    program::Ask,
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
    /// SIGTERM to the wrapper. The wrapper of a unit exits without its runner.
    Terminate,
    /// Of the unit, or of the container: also what an upgrade of GitLab's package does.
    ServiceStops {
        restarts: bool,
    },
    ServiceStarts,
    /// Another release of the wrapper is installed: another container, or a restart of the wrapper's service.
    Upgrade,
    /// The wrapper does not run for this time.
    WrapperAway {
        lasts: Duration,
    },
    /// systemd does not respond for this time.
    SystemdSilent {
        lasts: Duration,
    },
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
            11 => Self::service(random),
            12 => Self::SignalsRefused { lasts: random.millis(100, 15_000) },
            _ => Self::RunnerTerminated,
        }
    }

    /// What people and systemd do with the service of the runner, or of its wrapper.
    pub(in crate::simulation) fn service(random: &mut Random) -> Self {
        match random.below(12) {
            0..2 => Self::ServiceStops { restarts: true },
            2..4 => Self::ServiceStops { restarts: false },
            4..7 => Self::ServiceStarts,
            7..9 => Self::Upgrade,
            9 => Self::WrapperAway { lasts: random.millis(100, 60_000) },
            _ => Self::SystemdSilent { lasts: random.millis(50, 40_000) },
        }
    }

    pub(in crate::simulation) fn new(random: &mut Random) -> Self {
        match random.below(35) {
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
            18..24 | 32.. => Self::service(random),
            24 => Self::Reboot { limit: random.millis(1_000, 120_000) },
            25 => Self::PowerFails { lasts: random.millis(1_000, 400_000) },
            26 => Self::FileRemoved,
            27 => Self::FileBroken,
            28 => Self::RunnerTerminated,
            29 => Self::RunnerQuit,
            30 => Self::SignalsRefused { lasts: random.millis(100, 40_000) },
            31 => Self::Crashes { starts: u32::try_from(random.below(8)).unwrap_or_default() + 1 },
        }
    }
}

impl Inner {
    pub(in crate::simulation) fn act(&mut self, instance: &str, action: Action) {
        self.trace.count(format!("fault: {}", name(action)));
        self.log(instance, format!("operator: {action:?}"));
        match action {
            Action::Drain { id, is_forceful, deadline, has_callback } => {
                let mode = if is_forceful { StopMode::Forceful } else { StopMode::Graceful };
                let id = format!("op-{id}");
                self.drains += 1;
                let number = self.drains;
                let callbacks: Vec<_> = has_callback.then(|| callback(number)).into_iter().collect();
                let stop = Stop { callbacks, ..Stop::new(id.as_str(), mode) };
                self.ask(instance, Ask::Stop(stop.within(deadline)));
            }
            Action::Cancel => self.ask(instance, Ask::Cancel),
            Action::Start => {
                // Also where the wrapper is killed before it answers.
                if let Some(host) = self.hosts.get_mut(instance).filter(|host| host.promise.accepted) {
                    host.forgotten = Some("an operator started the runner");
                }
                self.ask(instance, Ask::Start);
            }
            Action::Reload => self.ask(instance, Ask::Reload),
            Action::Terminate => self.wrapper_terminated(instance),
            Action::ServiceStops { restarts } => self.service_stops(instance, restarts),
            Action::ServiceStarts => self.service_starts(instance),
            Action::Upgrade => self.upgrade(instance),
            Action::WrapperAway { lasts } => self.wrapper_goes_away(instance, lasts),
            Action::SystemdSilent { lasts } => self.systemd_is_silent(instance, lasts),
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
            Action::CallbackEnds => self.callback_ends(instance, self.number(instance), None),
            Action::Crashes { starts } => {
                if let Some(host) = self.hosts.get_mut(instance) {
                    host.crashes_left = starts;
                }
            }
            Action::CloudDestroys => self.cloud_destroys(instance),
            Action::AddressReused => self.address_reused(),
        }
    }

    /// `signals::SignalState::received`, and `Signals::end`.
    fn wrapper_terminated(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let drain_timeout = host.drain_timeout;
        let Some(wrapper) = &mut host.wrapper else { return };
        if host.policy.by_unit && !wrapper.is_exec_stop {
            return self.kill_wrapper(instance, "is asked to exit");
        }
        let number = wrapper.number();
        let stop = |mode| Stop::new(StopId::Signal, mode);
        match wrapper.signalled {
            None => {
                let leave = Ask::Leave(stop(StopMode::Graceful).within(drain_timeout));
                self.ask_then(instance, leave, move |world, instance, answer| {
                    if let Some(wrapper) = world.wrapper(instance, number).filter(|_| answer.is_ok()) {
                        wrapper.signalled = Some(Instant::now());
                    }
                });
            }
            Some(first) if first.elapsed() >= DUPLICATE_WINDOW => {
                self.trace.count("SIGTERM to the wrapper, repeated");
                self.ask(instance, Ask::Stop(stop(StopMode::Forceful)));
            }
            Some(_) => self.trace.count("SIGTERM to the wrapper within the window of duplicates"),
        }
    }

    /// The service of the runner is stopped: its unit, or its container.
    pub(super) fn service_stops(&mut self, instance: &str, restarts: bool) {
        if self.is_unit(instance) {
            return self.unit_stops(instance, restarts);
        }
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
        match self.is_unit(instance) {
            true => self.unit_starts(instance),
            false => self.wrapper_service_starts(instance),
        }
    }

    pub(super) fn wrapper_service_starts(&mut self, instance: &str) {
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

    /// The package of the wrapper is upgraded: `systemctl try-restart` of the wrapper's service, or another container.
    fn upgrade(&mut self, instance: &str) {
        if !self.is_unit(instance) {
            return self.service_stops(instance, true);
        }
        let Some(host) = self.hosts.get(instance) else { return };
        if host.wrapper.as_ref().is_some_and(|wrapper| !wrapper.is_exec_stop) {
            self.kill_wrapper(instance, "is restarted by an upgrade");
            let delay = self.random.millis(20, 300);
            self.later(instance, delay, Happening::WrapperStarts);
        }
    }

    fn wrapper_goes_away(&mut self, instance: &str, lasts: Duration) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if host.service != Service::Up
            || host.is_off
            || host.wrapper.as_ref().is_some_and(|it| it.is_exec_stop)
        {
            return;
        }
        host.service = Service::Stopped;
        self.kill_wrapper(instance, "is stopped");
        self.later(instance, lasts, Happening::Host(Happens::WrapperIsBack));
    }

    fn file_is_lost(&mut self, instance: &str, file: File) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        // Nothing but an operator writes an invalid file. The way out of it is only for a host whose runner can be found.
        if matches!(file, File::Broken) && !host.policy.by_unit {
            return;
        }
        host.file = file;
        host.file_lost = Some(REMOVED);
        host.callbacks.clear();
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

/// What people do with the service of a runner whose wrapper does not run, or whose systemd does not respond. With the pauses before it.
pub(in crate::simulation) fn around_systemd(random: &mut Random) -> Vec<(Duration, Fault)> {
    let host = Fault::Host;
    let drain = |random: &mut Random| {
        host(Action::Drain { id: 0, is_forceful: random.percent(20), deadline: None, has_callback: false })
    };
    let first = match random.below(3) {
        0 => Fault::RunnerCrashes,
        1 => drain(random),
        _ => host(Action::RunnerExits),
    };
    let away = match random.percent(50) {
        true => host(Action::WrapperAway { lasts: random.millis(1_000, 60_000) }),
        false => host(Action::SystemdSilent { lasts: random.millis(50, 30_000) }),
    };
    let mut faults = vec![(random.millis(0, 5_000), first), (random.millis(0, 5_200), away)];
    if random.percent(50) {
        faults.swap(0, 1);
    }
    for _ in 0..random.below(4) {
        let next = match random.below(8) {
            0..2 => drain(random),
            2 => host(Action::ServiceStops { restarts: random.percent(50) }),
            3 => host(Action::ServiceStarts),
            4 => host(Action::Start),
            5 => Fault::RunnerCrashes,
            6 => host(Action::RunnerExits),
            _ => Fault::KillWrapper,
        };
        faults.push((random.millis(0, 15_000), next));
    }
    faults
}

fn callback(number: u64) -> Callback {
    let none = std::collections::HashMap::new();
    Callback::new(&format!("http://ci.example/done/{number}"), "POST", &none).expect("a callback")
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
        Action::WrapperAway { .. } => "operator: the wrapper is stopped for some time",
        Action::SystemdSilent { .. } => "host: systemd does not respond",
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
