//! The end of a run: all faults end, operators repair what is left, and every promise is kept.

use std::time::Duration;

use grit_wrapper::supervise::State;
use tokio::time::Instant;

use super::{
    super::{
        runner::Mode,
        world::{Happening, Inner},
    },
    machine,
    program::Ask,
};

impl Inner {
    /// All faults of a host end. An operator starts what has stopped and was not drained.
    pub(in crate::simulation) fn repair_host(&mut self, instance: &str) {
        self.broken_file_removed(instance);
        self.boots(instance);
        self.wrapper_service_starts(instance);
        self.systemd_is_silent(instance, Duration::ZERO);
        self.service_starts(instance);
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.kill_in = None;
        host.disk_works = true;
        host.crashes_left = 0;
        if let Some(facts) = &mut host.facts {
            facts.refuses_until = Instant::now();
        }
        if let Some(runner) = &mut host.runner {
            let (pid, ends) =
                (runner.pid, runner.hangs && runner.mode == Mode::Finishing && runner.jobs.is_empty());
            runner.hangs = false;
            if ends {
                runner.mode = Mode::Exiting;
                self.later(instance, Duration::from_millis(1), Happening::CleanupEnds { pid });
            }
        }
        let Some(host) = self.hosts.get(instance) else { return };
        let is_ended = host
            .wrapper
            .as_ref()
            .is_some_and(|wrapper| matches!(wrapper.supervision.state, State::Exited { stop: None, .. }));
        if is_ended && !host.promise.accepted {
            self.log(instance, "the operator starts the runner");
            self.ask(instance, Ask::Start);
        }
    }

    /// What must hold at the end of a run, when all faults have ended.
    pub(in crate::simulation) fn check_end(&mut self) {
        self.check_jobs();
        let hosts: Vec<_> = self.hosts.keys().filter(|id| !id.starts_with(machine::OTHER)).cloned().collect();
        for instance in hosts {
            self.check_host_at_end(&instance);
        }
    }

    fn check_host_at_end(&mut self, instance: &str) {
        self.check_callbacks(instance);
        let Some(host) = self.hosts.get(instance) else { return };
        let promise = host.promise.clone();
        if promise.accepted && host.runner.is_some() {
            self.violation(instance, "an accepted drain was not carried out");
        } else if promise.leaving && host.wrapper.is_some() {
            self.violation(instance, "a wrapper that is stopping does not exit");
        }
    }
}
