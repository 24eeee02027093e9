//! The machine of a host: reset, power failure, shutdown, and the cloud that destroys it.

use std::time::Duration;

use super::{
    super::{
        runner::Mode,
        world::{Happening, Inner},
    },
    Happens,
    file::File,
    start::Service,
};

/// The beginning of the ids of other owners' hosts.
pub(super) const OTHER: &str = "other-";

impl Inner {
    /// The cloud destroys the instance. `allowed`: the user has confirmed that its runner may be running.
    pub(in crate::simulation) fn destroy_host(&mut self, instance: &str, allowed: Option<&str>) {
        let Some(host) = self.hosts.get(instance) else { return };
        let own = host.runner.as_ref().filter(|runner| runner.mode != Mode::BeforeExec);
        let running = own.map(|runner| (runner.pid, runner.jobs.len()));
        let is_newer = host.evidence.is_some_and(|evidence| host.runner_started() >= Some(evidence));
        let evidence = is_newer.then_some("started after its drain had ended");
        let forgotten = host.why_started().or(evidence);
        let strays: Vec<_> = host.strays.iter().map(|stray| stray.pid).collect();
        for stray in strays {
            self.trace.count("second runner destroyed with its host");
            self.abort_jobs(instance, stray, "its host was destroyed");
        }
        match (running, allowed) {
            // The drain was complete before this.
            (Some((pid, _)), None) if let Some(why) = forgotten => {
                self.trace.count(format!("destroyed while running: {why}"));
                self.log(instance, format!("destroyed while its runner {pid} runs: {why}"));
            }
            (Some((pid, jobs)), None) => {
                self.violation(instance, format!("destroyed while its runner {pid} runs with {jobs} jobs"));
            }
            (Some((pid, _)), Some(why)) => {
                self.trace.count(format!("destroyed while running: {why}"));
                self.log(instance, format!("destroyed while its runner {pid} runs: {why}"));
            }
            (None, _) => self.log(instance, "destroyed"),
        }
        if let Some((pid, _)) = running {
            self.abort_jobs(instance, pid, "its host was destroyed");
        }
        self.trace_host(
            instance,
            if running.is_some() { "instance destroyed with its runner" } else { "instance destroyed" },
        );
        self.connections_die(instance);
        let Some(host) = self.hosts.remove(instance) else { return };
        host.news.notify_waiters();
        if self.addresses.get(&host.address).is_some_and(|at| at == instance) {
            self.addresses.remove(&host.address);
        }
    }

    /// An address that no host has: often the one that has just become free.
    pub(in crate::simulation) fn free_address(&mut self) -> String {
        let mut number = if self.random.percent(60) { 1 } else { 1 + self.random.below(200) };
        loop {
            let address = format!("10.0.0.{number}");
            if !self.addresses.contains_key(&address) {
                return address;
            }
            number += 1;
        }
    }

    /// A reset, as by a panic of the kernel.
    pub(in crate::simulation) fn reset(&mut self, instance: &str) {
        self.trace.count("host reset");
        let lasts = self.random.millis(2_000, 30_000);
        self.power_fails(instance, Some(lasts));
    }

    /// The host is off without a shutdown, and starts again after this time.
    pub(super) fn power_fails(&mut self, instance: &str, lasts: Option<Duration>) {
        let Some(host) = self.hosts.get(instance) else { return };
        if host.is_off {
            return;
        }
        self.goes_off(instance, "its host was reset");
        self.gate_is_lost(instance);
        let chance = self.random.below(100);
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if !host.keeps_file {
            self.file_is_lost_at_boot(instance, "a reboot empties /run");
        } else if chance < 20 {
            // The record is not synced: "a reboot ends the runner anyway, and leaves at most an empty file" (`supervise::record`).
            host.file = File::Empty;
            host.file_lost = Some("the state file was empty after a power failure");
            host.callbacks.clear();
        } else if chance < 40 {
            // The last rename was not on the disk yet.
            host.file = std::mem::take(&mut host.older_file);
            host.file_lost = Some("the state file was old after a power failure");
            self.forget(instance, "the state file was old after a power failure");
        }
        if let Some(lasts) = lasts {
            self.later(instance, lasts, Happening::Host(Happens::Boots));
        }
    }

    fn file_is_lost_at_boot(&mut self, instance: &str, why: &'static str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.file = File::Missing;
        host.file_lost = Some(why);
        host.callbacks.clear();
    }

    /// Of a unit, the file that prevents starts is below `/run`.
    fn gate_is_lost(&mut self, instance: &str) {
        if !self.is_unit(instance) {
            return;
        }
        self.forget(instance, "a reboot empties /run");
        if let Some(host) = self.hosts.get_mut(instance) {
            // With its file, the next wrapper continues the drain with the runner that systemd starts.
            host.promise.may_continue = host.keeps_file;
            host.saved_promise.may_continue = host.keeps_file;
        }
    }

    /// Every process ends.
    fn goes_off(&mut self, instance: &str, why: &'static str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.is_off = true;
        host.kill_in = None;
        host.wrapper_is_gone();
        host.ended = None;
        host.leftovers = false;
        if let Some(unit) = host.unit() {
            unit.is_off();
        }
        host.news.notify_waiters();
        let pids: Vec<_> = host.strays.iter().chain(&host.runner).map(|runner| runner.pid).collect();
        self.connections_die(instance);
        self.log(instance, "host is off");
        self.keep_saved_promise(instance);
        for pid in pids {
            self.abort_jobs(instance, pid, why);
        }
        if let Some(host) = self.hosts.get_mut(instance) {
            host.runner = None;
            host.is_drained = true;
            host.facts = None;
            host.strays.clear();
        }
    }

    pub(super) fn boots(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if !host.is_off {
            return;
        }
        host.is_off = false;
        host.boots += 1;
        // The service is enabled.
        host.service = Service::Up;
        self.programs_start(instance, 2_000);
    }

    /// systemd stops the service, and ends all processes at its time limit.
    pub(super) fn reboots(&mut self, instance: &str, limit: Duration) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if host.is_off || host.shuts_down {
            return;
        }
        self.service_stops(instance, false);
        if let Some(host) = self.hosts.get_mut(instance) {
            host.shuts_down = true;
        }
        self.later(instance, limit, Happening::Host(Happens::ShutdownEnds { is_limit: true }));
        self.later(
            instance,
            Duration::from_secs(1),
            Happening::Host(Happens::ShutdownEnds { is_limit: false }),
        );
    }

    /// The shutdown is complete, or its limit is over.
    pub(super) fn shutdown_ends(&mut self, instance: &str, is_limit: bool) {
        let Some(host) = self.hosts.get_mut(instance).filter(|host| host.shuts_down) else { return };
        // The wrapper of a unit runs to the end.
        let is_stopped = host.runner.is_none() && (host.wrapper.is_none() || host.policy.by_unit);
        if !is_stopped && !is_limit {
            let again = Happening::Host(Happens::ShutdownEnds { is_limit: false });
            return self.later(instance, Duration::from_secs(1), again);
        }
        host.shuts_down = false;
        self.trace.count(if is_stopped { "shutdown in time" } else { "shutdown: its limit is over" });
        self.goes_off(instance, "its host was shut down");
        self.gate_is_lost(instance);
        // The file system is synced.
        if self.hosts.get(instance).is_some_and(|host| !host.keeps_file) {
            self.file_is_lost_at_boot(instance, "a reboot empties /run");
        }
        let lasts = self.random.millis(1_000, 10_000);
        self.later(instance, lasts, Happening::Host(Happens::Boots));
    }

    /// The instance is gone, while the state of Terraform has it.
    pub(super) fn cloud_destroys(&mut self, instance: &str) {
        self.destroy_host(instance, Some("by the cloud"));
    }

    /// A host of another owner has a free address, and its wrapper answers.
    pub(super) fn address_reused(&mut self) {
        let address = self.free_address();
        let name = format!("{OTHER}{}", address.replace('.', "-"));
        self.trace.count("host of another owner created");
        self.create_host(&name, "another owner", &address);
    }
}
