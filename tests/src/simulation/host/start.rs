//! How a wrapper starts, continues after an upgrade, exits and is killed, and what the service manager does then.

use grit_wrapper::supervise::{ChildInfo, Event, Moment, State, Supervision};
use tokio::time::{Duration, Instant};

use super::{
    super::{
        runner::Mode,
        world::{Happening, Inner},
    },
    Happens, Wrapper,
    file::File,
    identity,
    probe::Eyes,
    wrapper::Busy,
};

/// `record::adoption::BARRIER_LIMIT`.
const BARRIER_LIMIT: Duration = Duration::from_secs(10);
/// `RestartSec=` of the unit.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// What the service manager does with the service of the wrapper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::simulation) enum Service {
    /// It restarts a wrapper that ends (`Restart=always`).
    #[default]
    Up,
    /// `systemctl stop`, or `restart`, which starts the service afterwards.
    Stopping {
        restarts: bool,
    },
    Stopped,
}

impl Inner {
    pub(crate) fn wrapper_starts(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if host.wrapper.is_some() || host.is_off || host.service != Service::Up {
            return;
        }
        if matches!(host.file, File::Broken) {
            // `RecordError::Broken`: exit code 125, and systemd starts it again.
            self.trace.count("wrapper does not start: invalid state file");
            return self.later(instance, Duration::from_secs(5), Happening::WrapperStarts);
        }
        host.wrappers += 1;
        host.processes += 1;
        let process = host.processes;
        self.wrapper_finds(instance, process, Instant::now() + BARRIER_LIMIT);
    }

    /// `Saved::latest` and `Saved::find`.
    pub(super) fn wrapper_finds(&mut self, instance: &str, process: u32, until: Instant) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let boot = host.boot();
        let found = host.runner.as_ref().map(|runner| {
            let process = identity(runner.pid, boot);
            let child = ChildInfo { process, started: Moment::now() - runner.started.elapsed() };
            (child, runner.mode == Mode::AtBarrier)
        });
        let mut saved = host.file.read();
        let named = saved.as_ref().and_then(|(saved, _)| saved.state.process());
        let is_of_file = found
            .is_some_and(|(child, _)| named.is_some_and(|named: ChildInfo| named.process == child.process));
        // `cgroup::runner_in`
        let is_lost = found.is_some() && host.has_cgroup && !is_of_file;
        let is_found = is_of_file || is_lost;
        if is_found && found.is_some_and(|(_, at_barrier)| at_barrier) && Instant::now() < until {
            self.trace.count(match is_lost {
                true => "wrapper waits for a process of the cgroup at the exec barrier",
                false => "wrapper waits for a process at the exec barrier",
            });
            let next = Happening::Host(Happens::Finds { process, until });
            return self.later(instance, Duration::from_millis(5), next);
        }
        if let Some((child, _)) = found.filter(|_| is_lost) {
            let state = State::Running { child, reload_at: None };
            saved = Some((Supervision { state, ..Supervision::default() }, 0));
        }
        let is_own = saved.as_ref().is_some_and(|(_, writer)| *writer == process);
        // An own child that has exited was not reaped.
        let is_zombie = is_own && host.zombie.is_some_and(|(pid, _)| named.is_some_and(|it| it.pid() == pid));
        let is_running = is_found || is_zombie;
        let is_unfound = found.is_some() && !is_running;
        let was_missing = matches!(host.file, File::Missing | File::Empty);
        let supervision_of_file = saved.as_ref().map(|(saved, _)| saved.clone());
        let is_exact = is_own && is_running == named.is_some();
        let (supervision, what) = match saved {
            Some((saved, _)) if is_exact => (saved, "continues after an upgrade"),
            Some((saved, _)) => {
                let what = match (is_lost, is_running) {
                    (true, _) => "starts without a record of the runner, and finds it",
                    (false, true) => "starts, and adopts the runner",
                    (false, false) => "starts, without a runner",
                };
                (saved.adopted(is_running, Moment::now(), &host.policy), what)
            }
            None => (Supervision::default(), "starts"),
        };
        if !is_own {
            host.zombie = None;
            // `Child::handle_leftovers`.
            host.leftovers &= is_running;
            let known = supervision_of_file.as_ref().filter(|_| is_of_file);
            let has_fault = host.file_lost.is_some();
            if let Some(facts) = &mut host.facts {
                facts.adopted(known, has_fault);
            }
        } else if let Some(facts) = &mut host.facts {
            facts.watched_since = Instant::now();
        }
        if !is_running {
            // The runner has exited: only a client's drain concerns the next one. `docs/wrapper/adoption.md`, "Adoption".
            (host.promise.leaving, host.saved_promise.leaving) = (false, false);
            host.promise.runner_ended();
            host.saved_promise.runner_ended();
        }
        let number = host.wrappers;
        let eyes = Eyes::new(&host.setup.config);
        host.free_since = Some(Instant::now());
        host.wrapper = Some(Wrapper::new(number, process, supervision, eyes));
        self.log(instance, format!("wrapper {number} {what}"));
        self.trace.count(format!("wrapper {what}"));
        if !is_exact
            && is_running
            && let Some(host) = self.hosts.get(instance)
        {
            self.traces.add_state(&host.name, "the runner is adopted".to_owned());
        }
        if is_unfound && let Some(runner) = self.hosts.get_mut(instance).and_then(|host| host.runner.take()) {
            self.leave_alone(instance, runner);
        }
        if is_lost || was_missing {
            self.check_lost_record(instance, is_lost);
        }
        self.wrapper_runs(instance);
    }

    /// `Task::run`, and `boot`.
    fn wrapper_runs(&mut self, instance: &str) {
        self.save(instance);
        let Some(wrapper) = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref()) else { return };
        let number = wrapper.number;
        for callback in wrapper.sent_callbacks() {
            self.send_callback(instance, callback);
        }
        if self.survives(instance).is_err() {
            return self.kill_wrapper(instance, "is killed at its start");
        }
        self.notice_exit(instance);
        let _answer = self.deliver(instance, Event::Boot);
        // Also where the request is refused.
        if self.wrapper(instance, number).is_some() {
            self.schedule(instance);
        }
    }

    /// The state file is missing or empty, or lacks the runner: the documents name the reasons.
    fn check_lost_record(&mut self, instance: &str, lacks_runner: bool) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        match host.file_lost.take() {
            Some(why) => self.forget(instance, why),
            None if lacks_runner => {
                self.violation(instance, "the state file does not have the runner, without a fault");
            }
            None if host.promise.accepted => {
                self.violation(instance, "the record of an accepted drain was emptied");
            }
            None => self.forget(instance, "normal exit"),
        }
    }

    pub(crate) fn kill_wrapper(&mut self, instance: &str, how: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.kill_in = None;
        let Some(wrapper) = host.wrapper_is_gone() else { return };
        host.zombie = None;
        host.end_changes();
        let state = wrapper.supervision.state.public().name();
        self.log(instance, format!("wrapper {} {how} in state {state}", wrapper.number));
        self.trace.count(format!("wrapper killed while {state}"));
        if let Some(busy) = wrapper.busy {
            self.trace.count(format!("wrapper killed while its task waits: {busy:?}"));
        }
        self.keep_saved_promise(instance);
        self.barrier_ends(instance);
        self.wrapper_ended(instance);
    }

    /// Without the wrapper, a process at the barrier exits, unless it was released.
    fn barrier_ends(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let is_released = host.facts.as_ref().is_some_and(|facts| facts.is_released);
        if host.runner.as_ref().is_some_and(|runner| runner.mode == Mode::AtBarrier) && !is_released {
            host.runner = None;
            host.facts = None;
            self.trace.count("process at the exec barrier ends with its wrapper");
        }
    }

    /// The wrapper exits after its runner: `Task::leave_record`.
    pub(super) fn wrapper_leaves(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = &host.wrapper else { return };
        let stop = wrapper.supervision.state.stop();
        let keeps = stop.is_some_and(|stop| stop.id.as_str() != "signal" || !stop.callbacks.is_empty())
            || wrapper.supervision.last_stop.as_ref().is_some_and(|past| !past.stop.callbacks.is_empty());
        if keeps {
            self.save(instance);
        } else if host.disk_works {
            host.older_file = std::mem::replace(&mut host.file, File::Empty);
            host.file_lost = None;
            let accepted = host.promise.accepted;
            host.promise = super::promise::Promise { accepted, ..Default::default() };
            host.saved_promise = host.promise.clone();
        }
        let Some(host) = self.hosts.get_mut(instance) else { return };
        (host.promise.leaving, host.saved_promise.leaving) = (false, false);
        let Some(wrapper) = host.wrapper_is_gone() else { return };
        host.zombie = None;
        host.end_changes();
        self.keep_saved_promise(instance);
        self.log(instance, format!("wrapper {} exits", wrapper.number));
        self.trace.count("wrapper exits after its runner");
        self.wrapper_ended(instance);
    }

    /// The service manager.
    fn wrapper_ended(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.service = match host.service {
            Service::Stopping { restarts: false } => Service::Stopped,
            Service::Up | Service::Stopping { restarts: true } => Service::Up,
            Service::Stopped => Service::Stopped,
        };
        if host.service == Service::Up {
            // Other service managers restart immediately.
            let delay = match host.restarts_quickly {
                true => self.random.millis(5, 400),
                false => RESTART_DELAY + self.random.millis(0, 3_000),
            };
            self.later(instance, delay, Happening::WrapperStarts);
        }
    }

    /// SIGUSR1: the new binary was checked, and the task of the supervisor is asked to pause.
    pub(super) fn upgrade_pauses(&mut self, instance: &str, number: u32) {
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        if wrapper.busy.is_some() {
            // The request waits in the queue.
            let again = Happening::Host(Happens::UpgradePauses { wrapper: number });
            return self.later(instance, Duration::from_millis(50), again);
        }
        self.save(instance);
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        if wrapper.supervision.save_error.is_some() {
            self.trace.count("upgrade refused: the state is not saved");
            return;
        }
        wrapper.busy = Some(Busy::Upgrade);
        // `DELIVERY_TIME`, and the last lines of the log, for which it waits up to a second.
        let delay = match self.random.percent(20) {
            true => self.random.millis(60, 1_100),
            false => self.random.millis(10, 60),
        };
        self.later(instance, delay, Happening::Host(Happens::Upgrades { wrapper: number }));
    }

    /// The new binary is executed, or the old one continues.
    pub(super) fn upgrades(&mut self, instance: &str, number: u32) {
        if self.wrapper(instance, number).is_none() {
            return;
        }
        if self.survives(instance).is_err() {
            return self.kill_wrapper(instance, "is killed in its upgrade");
        }
        if self.random.percent(10) {
            self.trace.count("upgrade failed: the new binary cannot be executed");
            return self.wrapper_is_free(instance, None);
        }
        if self.hosts.get(instance).is_some_and(|host| matches!(host.file, File::Broken)) {
            return self.kill_wrapper(instance, "does not start after its upgrade");
        }
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = host.wrapper.take() else { return };
        host.wrappers += 1;
        host.end_changes();
        self.log(instance, "the wrapper executes its new binary");
        self.trace.count("wrapper upgraded");
        self.wrapper_finds(instance, wrapper.process, Instant::now() + BARRIER_LIMIT);
        // Calls in the queue fail; a signal is kept for the new program.
        for event in wrapper.waiting {
            if matches!(event, Event::Leave(_) | Event::Reload) {
                let _answer = self.deliver(instance, event);
            }
        }
    }
}
