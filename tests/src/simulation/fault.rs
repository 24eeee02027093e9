//! The faults of a run, and what each of them does.

use std::time::Duration;

use super::{
    gitlab,
    host::operator::Action,
    network,
    world::{Happening, Inner},
};

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
        let Some((instance, address)) =
            self.hosts.iter().nth(at).map(|(instance, host)| (instance.clone(), host.address.clone()))
        else {
            return;
        };
        match fault {
            Fault::KillWrapper => self.kill_wrapper(&instance, "is killed"),
            Fault::KillWrapperIn { steps } => {
                if let Some(host) = self.hosts.get_mut(&instance) {
                    host.kill_in = Some(steps);
                }
            }
            Fault::ResetHost => self.reset(&instance),
            Fault::DiskFails { lasts } => {
                self.disk(&instance, false);
                self.later(&instance, lasts, Happening::DiskWorks);
            }
            Fault::RunnerCrashes => self.runner_crashes(&instance),
            Fault::Network { fault, lasts } => {
                self.log(&instance, format!("network: {fault:?}"));
                self.trace.count(format!("network {fault:?}"));
                self.faults.insert(address, (fault, tokio::time::Instant::now() + lasts));
            }
            Fault::Gitlab { .. } => {}
            Fault::Host(action) => self.act(&instance, action),
        }
    }
}
