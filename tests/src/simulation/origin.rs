//! What one process of the provider may do to the runners, and what the wrappers have reported to it: the promises are checked against this.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use grit_provider::testing::client::{RunnerStatus, Snapshot};
use tokio::time::Instant;

use super::world::Inner;

/// limits: "a host that does not respond for 20 s has reported the exit before". The last attempt begins one second before.
const UNANSWERED: Duration = Duration::from_secs(19);
const UNANSWERED_INTERRUPTED: Duration = Duration::from_secs(2);

/// The calls of one process to one address: the most of 20,000 seeds are between 100 and 150 in a minute.
const MINUTE: Duration = Duration::from_secs(60);
const MAX_CALLS: usize = 200;

/// One process, or one invocation of an action.
#[derive(Debug, Default)]
pub(super) struct Origin(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The runners that it may drain, by the id of their instance. `None`: all, because the user has asked for it.
    drains: Option<BTreeMap<String, Drain>>,
    gate: Option<Gate>,
    /// The instances whose wrapper reported, last, that the runner has exited.
    stopped: BTreeSet<String>,
    /// How many of the last calls to an address found no host.
    absences: BTreeMap<String, u32>,
    /// The addresses whose host has responded, with a verified host key.
    reached: BTreeSet<String>,
    /// The addresses whose host was seen to be there, or was not attempted, by the last failed call. With the time of that call.
    contradicted: BTreeMap<String, Instant>,
    /// The instances that have a drain resource which stays.
    kept: BTreeSet<String>,
    /// The instance that has answered at an address, last.
    at: BTreeMap<String, String>,
    /// When an address has answered, last; `None` if it has then rejected the login.
    answered: BTreeMap<String, Option<Instant>>,
    /// The user has interrupted the command.
    is_interrupted: bool,
    /// The instances that it has asked to drain, and not to start since then.
    asked: BTreeSet<String>,
    /// When it has called each address in the last minute.
    calls: BTreeMap<String, VecDeque<Instant>>,
}

/// A drain that a process may request.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    pub(super) address: String,
    /// Only after the health check of the same apply has proved the new managers.
    pub(super) after_health: bool,
    pub(super) is_forceful: bool,
}

/// What a failed call shows of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    /// The host key is verified, and the wrapper was not reached.
    Verified,
    /// The host key is verified, and the host or the wrapper refused.
    Refused,
    /// A value of the machine of Terraform is missing.
    NotAttempted,
}

/// What the health check of an apply must prove.
#[derive(Debug)]
struct Gate {
    /// With their addresses.
    instances: BTreeMap<String, String>,
    needs: Needs,
    healthy_since: BTreeMap<String, Instant>,
    proved: BTreeSet<String>,
}

/// When a manager is healthy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) level: &'static str,
    pub(super) min_jobs: u64,
    pub(super) stable_for: Duration,
}

impl Origin {
    /// A process that may request these drains.
    pub(super) fn new(drains: Option<BTreeMap<String, Drain>>) -> Self {
        Self(Mutex::new(Known { drains, ..Known::default() }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is an action, which a user has invoked.
    pub(super) fn is_action(&self) -> bool {
        self.known().drains.is_none()
    }

    /// The health check begins to wait.
    pub(super) fn check_begins(&self, instances: BTreeMap<String, String>, needs: Needs) {
        self.known().gate =
            Some(Gate { instances, needs, healthy_since: BTreeMap::new(), proved: BTreeSet::new() });
    }

    /// The answer of the wrapper of an instance has arrived.
    pub(super) fn received(&self, instance: &str, address: &str, status: &Snapshot) {
        let known = &mut *self.known();
        known.absences.remove(address);
        known.reached.insert(address.to_owned());
        known.at.insert(address.to_owned(), instance.to_owned());
        known.answered.insert(address.to_owned(), Some(Instant::now()));
        let is_healthy = status.report.status == RunnerStatus::Running;
        if status.report.status == RunnerStatus::Stopped {
            known.stopped.insert(instance.to_owned());
        } else {
            known.stopped.remove(instance);
        }
        if let Some(gate) = &mut known.gate {
            gate.received(instance, status, is_healthy);
        }
    }

    /// A call to this address has no answer, or the answer is lost.
    pub(super) fn no_answer(&self, address: &str) {
        let known = &mut *self.known();
        if let (Some(gate), Some(instance)) = (&mut known.gate, known.at.get(address)) {
            gate.healthy_since.remove(instance);
        }
    }

    /// The login at this address is rejected: the call is not repeated.
    pub(super) fn rejected(&self, address: &str) {
        self.known().answered.insert(address.to_owned(), None);
    }

    pub(super) fn interrupted(&self) {
        self.known().is_interrupted = true;
    }

    /// A call has failed. `is_absent`: no host responds; `None` if the attempt was not made.
    pub(super) fn failed(&self, address: &str, is_absent: Option<bool>, shown: Shown) {
        let known = &mut *self.known();
        if shown == Shown::Verified || shown == Shown::Refused {
            known.reached.insert(address.to_owned());
        }
        if shown == Shown::Refused || shown == Shown::NotAttempted {
            known.contradicted.insert(address.to_owned(), Instant::now());
        } else {
            known.contradicted.remove(address);
        }
        let Some(is_absent) = is_absent else { return };
        let absences = &mut known.absences;
        let before = absences.get(address).copied().unwrap_or_default();
        absences.insert(address.to_owned(), if is_absent { before + 1 } else { 0 });
    }

    /// The apply keeps, or has created, a drain resource of this instance.
    pub(super) fn keeps(&self, instance: &str) {
        self.known().kept.insert(instance.to_owned());
    }

    /// A call to this address begins.
    pub(super) fn calls(&self, world: &mut Inner, address: &str) {
        let now = Instant::now();
        let known = &mut *self.known();
        let calls = known.calls.entry(address.to_owned()).or_default();
        calls.push_back(now);
        calls.retain(|at| *at + MINUTE > now);
        if calls.len().is_multiple_of(50) {
            world.trace.count(format!("calls to one address in a minute: {}", calls.len()));
        }
        if calls.len() == MAX_CALLS + 1 {
            world.violation(address, format!("more than {MAX_CALLS} calls in a minute"));
        }
    }

    /// Whether the wrapper of this instance has reported the exit of its runner.
    pub(super) fn knows_exit(&self, instance: &str) -> bool {
        self.known().stopped.contains(instance)
    }

    /// Whether the wrapper at this address has reported the exit of its runner, last.
    pub(super) fn knows_exit_at(&self, address: &str) -> bool {
        let known = self.known();
        known.at.get(address).is_some_and(|instance| known.stopped.contains(instance))
    }

    /// How many of the last calls to this address found no host.
    pub(super) fn absences(&self, address: &str) -> u32 {
        self.known().absences.get(address).copied().unwrap_or_default()
    }

    /// Whether a host at another address has responded.
    pub(super) fn has_reached_another(&self, address: &str) -> bool {
        self.known().reached.iter().any(|reached| reached != address)
    }

    /// Whether the last failed call since then contradicts that the host is gone.
    pub(super) fn is_contradicted(&self, address: &str, since: Instant) -> bool {
        self.known().contradicted.get(address).is_some_and(|at| *at >= since)
    }

    /// Whether nothing was received from this address for [`UNANSWERED`].
    pub(super) fn has_no_answer(&self, address: &str) -> bool {
        let known = self.known();
        let limit = if known.is_interrupted { UNANSWERED_INTERRUPTED } else { UNANSWERED };
        let answered = known.answered.get(address).copied().flatten();
        known.absences.contains_key(address) && answered.is_none_or(|answered| answered.elapsed() >= limit)
    }

    /// When an answer has arrived from this address, last.
    pub(super) fn answered(&self, address: &str) -> Option<Instant> {
        self.known().answered.get(address).copied().flatten()
    }

    /// Whether it may drain another instance at the address of this one.
    pub(super) fn shares_address(&self, instance: &str) -> bool {
        let known = self.known();
        let Some(Drain { address, .. }) = known.drain(instance) else { return false };
        let drains = known.drains.iter().flatten();
        drains.filter(|(_, drain)| drain.address == *address).count() > 1
    }

    /// A process requests a drain.
    pub(super) fn sends_drain(&self, world: &mut Inner, instance: &str, address: &str, is_forceful: bool) {
        let known = &mut *self.known();
        let is_draining = world.hosts.get(instance).is_some_and(|host| host.promise.accepted);
        let was_asked = !known.asked.insert(instance.to_owned()) || is_draining;
        let known = &*known;
        let Some(drains) = &known.drains else {
            if is_forceful {
                world.violation(instance, "a forceful request of an action that is graceful");
            }
            return world.trace.count("drain requested by an action");
        };
        let Some(drain) = drains.get(instance) else {
            return stranger(known, drains, world, instance, address);
        };
        if is_forceful && !drain.is_forceful && !was_asked {
            world.violation(instance, "a forceful request to a runner that was not asked to drain");
        }
        if drain.after_health && !known.gate.as_ref().is_some_and(|gate| gate.is_proved(world, &known.at)) {
            world.violation(instance, "its drain is requested before the new managers are proved");
        }
    }
}

/// The order of the levels.
fn rank(level: &str) -> Option<usize> {
    ["none", "process", "ready", "polling", "working"].iter().position(|known| *known == level)
}

impl Known {
    fn drain(&self, instance: &str) -> Option<&Drain> {
        self.drains.as_ref()?.get(instance)
    }
}

/// A drain reaches a runner that no drain resource of the apply belongs to.
fn stranger(
    known: &Known,
    drains: &BTreeMap<String, Drain>,
    world: &mut Inner,
    instance: &str,
    address: &str,
) {
    match gone_at(drains, world, address) {
        // runner_drain, Limits: "If a new instance has the address of a lost one, the old drain would drain the new runner. The provider
        // detects this only if both drains are in one configuration."
        Some(gone) if !known.kept.contains(instance) => {
            let what = format!("drained in place of {gone}, whose address it has");
            world.log(instance, what);
            world.trace.count("drained: it has the address of an instance that is gone");
        }
        Some(gone) => {
            let what = format!("a runner that stays is drained in place of {gone}, whose address it has");
            world.violation(instance, what);
        }
        None => world.violation(instance, "a drain is requested of a runner whose instance stays"),
    }
}

/// The instance at this address that is to be drained, and is gone.
fn gone_at<'a>(drains: &'a BTreeMap<String, Drain>, world: &Inner, address: &str) -> Option<&'a String> {
    let at_address = drains.iter().filter(|(_, drain)| drain.address == address);
    at_address.map(|(instance, _)| instance).find(|instance| !world.hosts.contains_key(*instance))
}

impl Gate {
    fn received(&mut self, instance: &str, status: &Snapshot, is_running: bool) {
        let detail = status.detail.as_deref();
        let succeeded = detail.and_then(|detail| detail.evidence.jobs_succeeded);
        let has_jobs = succeeded.unwrap_or_default() >= self.needs.min_jobs;
        let has_level = detail.is_some_and(|detail| rank(detail.level.as_str()) >= rank(self.needs.level));
        if !is_running || !has_level || !has_jobs {
            self.healthy_since.remove(instance);
            return;
        }
        let since = *self.healthy_since.entry(instance.to_owned()).or_insert_with(Instant::now);
        if since.elapsed() >= self.needs.stable_for {
            self.proved.insert(instance.to_owned());
        }
    }

    /// docs/guides/limits.md: "if another instance gets the address of a lost one, a health check or a drain reaches that instance".
    fn is_proved(&self, world: &mut Inner, at: &BTreeMap<String, String>) -> bool {
        let proves_other = |instance: &str, address: &String| {
            !world.hosts.contains_key(instance)
                && at.get(address).is_some_and(|other| self.proved.contains(other))
        };
        let mut unproved = self.instances.iter().filter(|(instance, _)| !self.proved.contains(*instance));
        let is_other = unproved.clone().count() > 0;
        let is_proved = unproved.all(|(instance, address)| proves_other(instance, address));
        if is_other && is_proved {
            world.trace.count("health check: another instance has the address of a lost one");
        }
        is_proved
    }
}
