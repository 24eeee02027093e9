//! How a wrapper starts, exits and is killed, and what the service manager does then.

use grit_wrapper::testing::{self, First};
use tokio::time::{Duration, Instant};

use super::{
    super::{
        runner::Mode,
        world::{Happening, Inner},
    },
    Host, Owner, Wrapper,
    exec_stop::by_systemd,
    file::File,
    process::Facts,
};

/// `RestartSec=` of the unit.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// What the service manager does with the service of the wrapper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::simulation) enum Service {
    /// It restarts a wrapper that ends (`Restart=always`).
    #[default]
    Up,
    /// The engine stops the wrapper, or restarts it. Of a runner of systemd, the wrapper ends at once.
    Stopping {
        restarts: bool,
    },
    Stopped,
}

impl Inner {
    pub(crate) fn wrapper_starts(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        // The command of `ExecStop=` has the state file, and lets go of it at its end.
        if host.wrapper.is_some() || host.is_off || host.service != Service::Up {
            return;
        }
        if matches!(host.file, File::Broken) {
            // `RecordError::Broken`: exit code 125, and it is started again.
            self.trace.count("wrapper does not start: invalid state file");
            return self.later(instance, Duration::from_secs(5), Happening::WrapperStarts);
        }
        let first = if self.is_unit(instance) { First::Look } else { First::Boot };
        self.wrapper_continues(instance, first, false);
    }

    /// The command of `ExecStop=` takes the place of the wrapper: `daemon::run`, `drain_at_start`.
    pub(super) fn exec_stop_is_wrapper(&mut self, instance: &str) {
        self.trace.count("exec-stop drains without the wrapper");
        self.wrapper_continues(instance, First::Leave(by_systemd()), true);
    }

    /// A wrapper starts, with the state file.
    fn wrapper_continues(&mut self, instance: &str, first: First, is_exec_stop: bool) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.wrappers += 1;
        let number = host.wrappers;
        let saved = host.file.read();
        let was_missing = matches!(host.file, File::Missing | File::Empty);
        let named = saved.as_ref().and_then(|saved| saved.state.child());
        let is_running = named.is_some_and(|named| !host.has_exited(named));
        let is_child = matches!(host.owner, Owner::Child(_));
        let what = match (named.is_some(), is_running) {
            (false, _) => "starts",
            (true, true) => "starts, and the runner of the earlier one runs",
            (true, false) => "starts, and the runner of the earlier one has exited",
        };
        let has_fault = host.file_lost.is_some();
        if let Some(facts) = &mut host.facts {
            facts.continued(saved.as_ref().filter(|_| is_running), has_fault);
        }
        if let Some(ended) = &mut host.ended {
            ended.continued(saved.as_ref().filter(|_| named.is_some()), has_fault);
        }
        // Only a client's drain concerns the next runner: `docs/wrapper/running.md`, "The command".
        (host.promise.leaving, host.saved_promise.leaving) = (false, false);
        if named.is_none() && is_child {
            host.promise.runner_ended();
            host.saved_promise.runner_ended();
        }
        host.free_since = Some(Instant::now());
        let text = host.file.text().map(<[u8]>::to_vec);
        host.wrapper = Some(Wrapper::new(number, is_exec_stop));
        let stray = host.runner.take_if(|_| is_child && !is_running);
        self.log(instance, format!("wrapper {number} {what}"));
        self.trace.count(format!("wrapper {what}"));
        if is_child && is_running {
            self.trace_state(instance, "the next wrapper waits for the runner");
        }
        if let Some(runner) = stray {
            self.leave_alone(instance, runner);
        }
        if was_missing {
            self.check_lost_record(instance);
        }
        self.program_starts(instance, first, text);
    }

    /// The program of a wrapper has read its file.
    pub(super) fn has_continued(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = &host.wrapper else { return };
        if host.is_unit() && testing::is_held(&wrapper.supervision) {
            (host.promise.may_continue, host.saved_promise.may_continue) = (true, true);
        }
    }

    fn trace_state(&mut self, instance: &str, what: &str) {
        if let Some(host) = self.hosts.get(instance) {
            self.traces.add_state(&host.name, what.to_owned());
        }
    }

    /// The state file is missing or empty: the documents name the reasons.
    fn check_lost_record(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let is_closed = host.unit().is_some_and(|unit| unit.is_closed);
        match host.file_lost {
            Some(_) if is_closed && matches!(host.file, File::Missing) => {
                self.trace.count("the state file is lost, and the drain of a client goes on");
                if let Some(host) = self.hosts.get_mut(instance) {
                    host.promise.record_is_lost();
                    host.saved_promise = host.promise.clone();
                }
            }
            Some(why) => self.forget(instance, why),
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
        let state = wrapper.supervision.state.public().name();
        self.connections_close(instance, wrapper.number());
        self.log(instance, format!("wrapper {} {how} in state {state}", wrapper.number()));
        self.trace.count(format!("wrapper killed while {state}"));
        if wrapper.is_frozen() {
            self.trace.count("wrapper killed in a slow write or exec");
        }
        self.keep_saved_promise(instance);
        self.children_notice(instance, wrapper.number());
        self.wrapper_ended(instance, &wrapper, true);
    }

    /// What the kernel does with the runner of a wrapper that has ended.
    fn children_notice(&mut self, instance: &str, number: u32) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Owner::Child(child) = &host.owner else { return };
        let (is_container, changes_user) = (child.is_container, child.changes_user);
        let of_container =
            |host: &Host| host.strays.iter().chain(&host.runner).map(|runner| runner.pid).collect::<Vec<_>>();
        if is_container {
            for pid in of_container(host) {
                self.jobs_abort(instance, pid, "its container was killed");
                self.runner_exits(instance, pid, grit_wrapper::supervise::process::Exit::Signal(9));
            }
            if let Some(host) = self.hosts.get_mut(instance) {
                host.leftovers = false;
            }
            return;
        }
        let is_own = host.facts.as_ref().is_some_and(|facts| facts.parent == Some(number));
        let changes_user = changes_user && host.facts.as_ref().is_some_and(Facts::has_changed_user);
        let Some(runner) = host.runner.as_ref().filter(|_| is_own) else { return };
        // Without a request: the next wrapper only waits for its exit.
        (host.promise.stops, host.saved_promise.stops) = (true, true);
        let pid = runner.pid;
        match runner.mode {
            // The signal, or the check after its setting, ends the process.
            Mode::BeforeExec => {
                (host.runner, host.facts) = (None, None);
                self.trace.count("process before its exec ends with its wrapper");
            }
            _ if changes_user => {
                self.trace.count("the kernel sends no signal to a runner that changes its user");
            }
            _ => self.parent_has_died(instance, pid),
        }
    }

    /// The supervisor of a wrapper has ended after its runner, and has left what the next wrapper needs.
    pub(super) fn wrapper_leaves(&mut self, instance: &str, number: u32) {
        if self.wrapper(instance, number).is_none() {
            return;
        }
        let Some(host) = self.hosts.get_mut(instance) else { return };
        (host.promise.leaving, host.saved_promise.leaving) = (false, false);
        let Some(wrapper) = host.wrapper_is_gone() else { return };
        self.keep_saved_promise(instance);
        self.connections_close(instance, number);
        self.log(instance, format!("wrapper {number} exits"));
        self.trace.count("wrapper exits after its runner");
        self.wrapper_ended(instance, &wrapper, false);
    }

    /// The service manager.
    fn wrapper_ended(&mut self, instance: &str, wrapper: &Wrapper, is_killed: bool) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.service = match host.service {
            // It is a process of another service.
            service if wrapper.is_exec_stop => service,
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
        if wrapper.is_exec_stop {
            self.exec_stop_ended(instance, is_killed);
        }
    }
}

impl Host {
    /// Whether the state file can be written. On a host of systemd with its file elsewhere, a full `/run` does not matter.
    pub(super) fn file_works(&self) -> bool {
        let is_elsewhere = match &self.owner {
            Owner::Unit(unit) => self.keeps_file && unit.gate_needs_space,
            Owner::Child(_) => false,
        };
        self.disk_works || is_elsewhere
    }
}
