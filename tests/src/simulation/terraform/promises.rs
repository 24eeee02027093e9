//! What must hold in each step of an apply.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{
    Address, Config, Kind, Object, Terraform,
    change::Stored,
    graph::{Node, Step},
    plan::{Action, Change, Planning, Target},
    values::member,
};
use crate::{
    dynamic::Dynamic,
    simulation::{
        options::ATTEMPTS,
        origin::{Drain, Origin},
    },
};

/// The wrapper has seen by then that its unit has started a runner: it reads its state each 5 s.
const SEEN_AFTER: Duration = Duration::from_secs(6);

impl Terraform {
    /// What the process of an apply may do.
    pub(super) fn origin(&self, config: &Config, planning: &Planning, changes: &[Change]) -> Origin {
        // Some manager is new, or the provider plans to check all of them again.
        let checks = |change: &Change| match change.kind {
            Kind::Instance => config.managers.contains_key(&change.key),
            Kind::Health => true,
            Kind::Drain | Kind::Shutdown => false,
        };
        let after_health = changes.iter().any(|change| change.action.is_change() && checks(change));
        let mut drains = BTreeMap::new();
        let mut kept: Vec<_> = self.of_kind(Kind::Drain).filter_map(Object::instance).collect();
        for change in changes {
            match (change.kind, change.action) {
                (Kind::Drain, Action::Destroy | Action::DestroyDeposed(_) | Action::Replace) => {
                    let Some(object) = self.object(change) else { continue };
                    let Some(instance) = object.instance() else { continue };
                    kept.retain(|kept| *kept != instance);
                    drains.insert(instance, drain(object, after_health));
                }
                (Kind::Shutdown, action) if action.is_change() => {
                    drains.extend(config.retires.values().map(|it| {
                        let drain = Drain {
                            address: it.address.clone(),
                            after_health,
                            is_forceful: config.options.is_forceful,
                        };
                        (it.instance.clone(), drain)
                    }));
                }
                _ => {}
            }
        }
        if planning.target == Some(Target::Health) {
            // layouts-that-fail: "`-target` of the health check [...] With `start_drains`, the old runners already drain."
            for object in self.of_kind(Kind::Drain).filter(|it| !config.managers.contains_key(&it.key)) {
                drains.extend(object.instance().map(|instance| (instance, drain(object, after_health))));
            }
        }
        let origin = Origin::new(Some(drains));
        kept.iter().for_each(|instance| origin.keeps(instance));
        origin
    }

    /// The object that a change destroys or replaces.
    fn object(&self, change: &Change) -> Option<&Object> {
        let deposed = match change.action {
            Action::DestroyDeposed(deposed) => Some(deposed),
            _ => None,
        };
        let mut all = self.of_kind(change.kind);
        all.find(|object| object.key == change.key && object.deposed == deposed)
    }

    /// A step of a drain resource has ended.
    pub(super) fn check_drain(
        &mut self,
        origin: &Origin,
        node: &Node,
        prior: Option<&Object>,
        since: Instant,
        result: &Stored,
    ) {
        match (node.step, result) {
            (Step::Create | Step::Replace { .. }, Stored::Object { value, errors, .. })
                if errors.is_empty() =>
            {
                if let Dynamic::Text(instance) = member(value, "instance_id") {
                    origin.keeps(instance);
                }
            }
            (Step::Create | Step::Replace { .. }, Stored::Object { errors, .. } | Stored::Failed(errors)) => {
                let what = format!("the create of a drain resource has failed: {}", errors.join("; "));
                self.world.now().violation("terraform", what);
            }
            (Step::Destroy { .. }, Stored::Destroyed) => {
                if let Some(prior) = prior {
                    self.check_evidence(origin, prior, since);
                }
            }
            _ => {}
        }
    }

    /// A step of a shutdown resource has ended. Its result says for each runner manager why it is terminated.
    pub(super) fn check_shutdown(
        &mut self,
        origin: &Origin,
        config: &Config,
        prior: Option<&Object>,
        since: Instant,
        result: &Stored,
    ) {
        let Stored::Object { value, .. } = result else { return };
        let prior = prior.map_or(&Dynamic::Null, |prior| &prior.value);
        for (key, Address { instance, address }) in &config.retires {
            let Dynamic::Text(state) = member(member(member(value, "managers"), key), "state") else {
                continue;
            };
            if is_recorded(prior, value, key) {
                continue;
            }
            let is_gone = !self.world.now().hosts.contains_key(instance);
            match state.as_str() {
                "stopped" if origin.knows_exit(instance) => self.check_exit(origin, instance, address, since),
                // See `origin::stranger`.
                "stopped" if is_gone && origin.knows_exit_at(address) => {
                    let what = "shutdown ended: its instance was gone, and another one has the address";
                    self.world.now().trace.count(what);
                }
                "assumed_terminated" if self.is_named(instance) => {
                    self.assumed(instance, "its shutdown found no host", "the user named its instance");
                }
                "assumed_terminated" if config.options.assumes => {
                    let attempts = config.options.attempts.unwrap_or(ATTEMPTS);
                    self.check_absence(origin, instance, address, attempts, since + config.options.delete);
                    self.assumed(
                        instance,
                        "its shutdown found no host",
                        "no host answered (assume_terminated)",
                    );
                }
                "stopped" | "assumed_terminated" => {
                    let what = format!("its shutdown has ended without the report of its wrapper: {state}");
                    self.world.now().violation(instance, what);
                }
                _ => {}
            }
        }
    }

    fn assumed(&mut self, instance: &str, excuse: &'static str, why: &str) {
        let mut world = self.world.now();
        world.trace.count(format!("shutdown ended: {why}"));
        world.excuses.insert(instance.to_owned(), excuse);
    }

    /// The wrapper has reported the exit of its runner since the step has begun: it had no runner at some moment since then.
    fn check_exit(&self, origin: &Origin, instance: &str, address: &str, since: Instant) {
        let mut world = self.world.now();
        let Some(host) = world.hosts.get_mut(instance) else { return };
        let Some(started) = host.runner_started() else {
            host.evidence = Some(Instant::now());
            return;
        };
        let why = host.why_started();
        if started < since && (why.is_none() || started + SEEN_AFTER < since) {
            world.violation(instance, "its drain has ended, and its runner, which is older, runs");
            return;
        }
        host.evidence = Some(since);
        if let Some(why) = why {
            // It had exited before this.
            world.trace.count(format!("drain ended, and its runner runs: {why}"));
        } else if origin.has_no_answer(address) {
            world
                .trace
                .count("limit: its host was not reachable after the receipt, and has started a runner");
        } else if origin.answered(address).is_some_and(|last| {
            last < started && world.gitlab.receipt_end(instance).is_none_or(|receipt| receipt <= last)
        }) {
            // The call waits for other runner managers.
            world.trace.count("limit: its host has started a runner after its last status was read");
        } else if !world.excuses.contains_key(instance) {
            world.violation(instance, "its drain has ended, and its runner runs");
        }
    }

    /// "It counts as terminated after `retry.attempts`": or at the end of its time.
    fn check_absence(&self, origin: &Origin, instance: &str, address: &str, attempts: u32, end: Instant) {
        let absences = origin.absences(address);
        let is_late = Instant::now() + Duration::from_secs(1) >= end;
        if absences < attempts && !(is_late && absences > 0) {
            let what = format!("assumed terminated after {absences} of {attempts} attempts");
            self.world.now().violation(instance, what);
        }
        // runner_drain: "this run has reached another host"
        if !origin.has_reached_another(address) {
            self.world.now().violation(instance, "assumed terminated, and no other host was reached");
        }
    }

    /// The user names this instance, or drain resource, in `GRIT_ASSUME_TERMINATED`.
    pub(super) fn is_named(&self, id: &str) -> bool {
        self.assumed.split(',').any(|named| named == id)
    }

    /// runner_drain: "It succeeds only with evidence: the wrapper reports the exit, or you confirm that the host is gone."
    fn check_evidence(&mut self, origin: &Origin, prior: &Object, since: Instant) {
        let (Some(instance), Some(address)) = (prior.instance(), address_of(prior)) else { return };
        let id = prior.text("id").unwrap_or_default();
        let is_gone = !self.world.now().hosts.contains_key(&instance);
        let is_named = self.is_named(&instance) || self.is_named(&id);
        // A runner may have been started since its exit was reported, and its host be silent now: that is the user's word.
        let is_contradicted = origin.is_contradicted(&address, since);
        let counts_as_gone = is_named && origin.has_no_answer(&address) && !is_contradicted;
        if origin.knows_exit(&instance) && !counts_as_gone {
            self.check_exit(origin, &instance, &address, since);
        } else if is_named {
            // runner_drain: "The host counts as gone: [...]. Destroy fails: [...] or the host refuses the login."
            if is_contradicted {
                self.world.now().violation(&instance, "the user named its instance, and its host is there");
            }
            self.world.now().trace.count("drain ended: the user named its instance");
            // Also if its runner is started afterwards.
            self.allowed.insert(instance, "the user named it");
        } else if is_gone && origin.knows_exit_at(&address) {
            // See `origin::stranger`.
            let what = "drain ended: its instance was gone, and another one has the address";
            self.world.now().trace.count(what);
        } else if member(&prior.value, "on_unreachable") != &Dynamic::Null {
            self.check_absence(origin, &instance, &address, attempts(prior), since + timeout(prior));
            self.world.now().trace.count("drain ended: no host answered (assume_terminated)");
            self.allowed.insert(instance, "no host answered at its address (assume_terminated)");
        } else {
            let what = "its drain has ended without the report of its wrapper";
            self.world.now().violation(&instance, what);
        }
    }
}

/// Whether the evidence of this runner manager is that of the prior object.
pub(super) fn is_recorded(prior: &Dynamic, value: &Dynamic, key: &str) -> bool {
    let state = |object| member(member(member(object, "managers"), key), "state");
    let manager = |object| member(member(object, "runner_managers"), key);
    state(prior) != &Dynamic::Null && state(prior) == state(value) && manager(prior) == manager(value)
}

fn drain(object: &Object, after_health: bool) -> Drain {
    Drain {
        address: address_of(object).unwrap_or_default(),
        after_health,
        is_forceful: *member(&object.value, "mode") != Dynamic::Null,
    }
}

fn address_of(drain: &Object) -> Option<String> {
    match member(member(&drain.value, "runner_manager"), "address") {
        Dynamic::Text(address) => Some(address.clone()),
        _ => None,
    }
}

fn attempts(drain: &Object) -> u32 {
    match member(member(&drain.value, "retry"), "attempts") {
        Dynamic::Number(number) => number.as_i64().and_then(|it| u32::try_from(it).ok()).unwrap_or(ATTEMPTS),
        _ => ATTEMPTS,
    }
}

fn timeout(drain: &Object) -> Duration {
    match member(member(&drain.value, "timeouts"), "delete") {
        Dynamic::Text(text) => Duration::from_secs(text.trim_end_matches('s').parse().unwrap_or(10_800)),
        _ => Duration::from_secs(10_800),
    }
}
