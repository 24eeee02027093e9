//! The faults of a run, and what each of them does.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    gitlab,
    host::operator::Action,
    network,
    world::{Happening, Inner},
};

/// A fault at a moment that random times rarely meet: when the wrapper of a host has this state, as the table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aimed {
    pub(super) state: &'static str,
    pub(super) at: At,
    pub(super) fault: Fault,
}

/// The moment of an aimed fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// So long after the state has begun.
    After(Duration),
    /// So long before the wrapper's timer is due.
    BeforeDue(Duration),
}

/// What happens to one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    KillWrapper,
    /// It is killed in the middle of its work, after this number of steps.
    KillWrapperIn {
        steps: u32,
    },
    ResetHost,
    DiskFails {
        lasts: Duration,
    },
    RunnerCrashes,
    Network {
        fault: network::Fault,
        lasts: Duration,
    },
    /// Of GitLab, for all hosts.
    Gitlab {
        fault: gitlab::Fault,
        lasts: Duration,
    },
    /// What an operator, or another program, does on the host.
    Host(Action),
}

impl Inner {
    /// The fault happens to the host with this number, modulo the number of hosts.
    pub(super) fn fault_happens(&mut self, number: u64, fault: Fault) {
        if let Fault::Gitlab { fault, lasts } = fault {
            return self.gitlab_fails(fault, lasts);
        }
        let count = self.hosts.len().max(1) as u64;
        let at = usize::try_from(number % count).unwrap_or_default();
        if let Some(instance) = self.hosts.keys().nth(at).cloned() {
            self.fault_of_host(&instance, fault);
        }
    }

    pub(super) fn fault_of_host(&mut self, instance: &str, fault: Fault) {
        let name = match fault {
            Fault::KillWrapper => Some("wrapper killed"),
            Fault::KillWrapperIn { .. } => Some("wrapper killed in its work"),
            Fault::ResetHost => Some("host reset"),
            Fault::DiskFails { .. } => Some("disk fails"),
            Fault::RunnerCrashes => Some("runner crashes"),
            // Counted with more of their names.
            Fault::Network { .. } | Fault::Gitlab { .. } | Fault::Host(_) => None,
        };
        if let Some(name) = name {
            self.trace.count(format!("fault: {name}"));
        }
        match fault {
            Fault::KillWrapper => self.kill_wrapper(instance, "is killed"),
            Fault::KillWrapperIn { steps } => {
                if let Some(host) = self.hosts.get_mut(instance) {
                    host.kill_in = Some(steps);
                }
            }
            Fault::ResetHost => self.reset(instance),
            Fault::DiskFails { lasts } => {
                self.disk(instance, false);
                self.later(instance, lasts, Happening::DiskWorks);
            }
            Fault::RunnerCrashes => self.runner_crashes(instance),
            Fault::Network { fault, lasts } => {
                let Some(address) = self.hosts.get(instance).map(|host| host.address.clone()) else { return };
                self.log(instance, format!("network: {fault:?}"));
                self.trace.count(format!("fault: network {fault:?}"));
                self.faults.insert(address, (fault, Instant::now() + lasts));
            }
            Fault::Gitlab { fault, lasts } => self.gitlab_fails(fault, lasts),
            Fault::Host(action) => self.act(instance, action),
        }
    }

    /// The aimed faults of a step, in this order: each is for a state that begins after the state of the one before.
    pub(super) fn aim(&mut self, faults: &[Aimed]) {
        self.aims = faults.iter().copied().collect();
        let hosts: Vec<_> = self.hosts.keys().cloned().collect();
        for host in hosts {
            self.meet_aims(&host);
        }
    }

    /// The wrapper of this host may have a state that a fault is aimed at.
    pub(super) fn meet_aims(&mut self, instance: &str) {
        while let Some(Aimed { state, at, fault }) = self.aims.front().copied()
            && let Some((now, due)) = self.hosts.get(instance).and_then(|host| host.aimed_state())
            && now == state
        {
            self.aims.pop_front();
            self.trace.count("aimed fault");
            self.log(instance, format!("aimed at {state}, {at:?}: {fault:?}"));
            let at = match (at, due) {
                (At::After(time), _) => Instant::now() + time,
                (At::BeforeDue(time), Some(due)) => due.checked_sub(time).unwrap_or(due),
                (At::BeforeDue(_), None) => Instant::now(),
            };
            self.at(instance, at, Happening::Aimed { fault });
        }
    }
}
