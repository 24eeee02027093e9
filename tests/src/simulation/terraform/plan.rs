//! The plan: a refresh of all objects, then the changes that the configuration needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::join_all;

use super::{
    Config, Kind, Terraform,
    calls::{Errors, Process},
    values::member,
};
use crate::{dynamic::Dynamic, simulation::origin::Origin};

/// The options of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::simulation) struct Planning {
    /// `-replace` of the drain resource with this key.
    pub(in crate::simulation) replace: Option<String>,
    pub(in crate::simulation) target: Option<Target>,
    pub(in crate::simulation) refresh_only: bool,
    /// A user has tainted this drain resource.
    pub(in crate::simulation) tainted: Option<String>,
}

/// `-target`. It excludes what depends on the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::simulation) enum Target {
    Instance(String),
    Health,
}

/// What an apply does with one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulation) enum Action {
    Create,
    Update,
    /// Creates the new object first. The old one is deposed, and destroyed later.
    Replace,
    Destroy,
    /// Destroys the object that an earlier apply has deposed.
    DestroyDeposed(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::simulation) struct Change {
    pub(in crate::simulation) kind: Kind,
    pub(in crate::simulation) key: String,
    pub(in crate::simulation) action: Action,
}

impl Action {
    /// Whether an object exists after it.
    pub(super) fn is_change(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Replace)
    }
}

impl Terraform {
    pub(in crate::simulation) async fn plan(
        &mut self,
        config: &Config,
        planning: &Planning,
    ) -> Result<Vec<Change>, Errors> {
        let instances = self.plan_instances(config);
        if let Some(Target::Instance(key)) = &planning.target {
            let target = |change: &Change| change.key == *key && change.action != Action::Create;
            let is_found = instances.iter().any(target);
            return Ok(instances.into_iter().filter(|change| is_found && change.key == *key).collect());
        }
        let origin = Arc::new(Origin::new(Some(BTreeMap::new())));
        let process = Process::start(&self.world, &self.assumed, &origin).await;
        let mut changes = instances;
        // Not those of which only a deposed object is destroyed.
        let is_new = |change: &&Change| change.action.is_change();
        let changing: BTreeSet<_> = changes.iter().filter(is_new).map(|change| change.key.clone()).collect();
        let mut new_ids = BTreeSet::new();
        for kind in [Kind::Drain, Kind::Health, Kind::Shutdown] {
            let planned = self
                .plan_kind(&process, config, kind, &changing, &new_ids, planning.replace.as_ref())
                .await?;
            if kind == Kind::Health && planned.is_empty() {
                self.check_unproved(config, &changing, &new_ids);
            }
            if kind == Kind::Drain {
                let is_new = |change: &&Change| change.action.is_change();
                new_ids = planned.iter().filter(is_new).map(|change| change.key.clone()).collect();
            }
            changes.extend(planned);
        }
        if planning.target == Some(Target::Health) {
            // The plan has called the provider for all; the apply leaves out what the health check does not refer to.
            changes.retain(|change| change.action != Action::Destroy);
        }
        Ok(changes)
    }

    /// What a plan that was not refused must, and must not, have.
    pub(super) fn check_plan(&mut self, config: &Config, planning: &Planning, changes: &[Change]) {
        self.targeted.clear();
        if let Some(Target::Instance(_)) = planning.target {
            for change in changes.iter().filter(|change| change.action != Action::Create) {
                let targeted = self.of_kind(Kind::Instance).filter(|object| object.key == change.key);
                let ids: Vec<_> = targeted.filter_map(super::Object::instance).collect();
                // layouts-that-fail: "`-target` of an instance".
                self.targeted.extend(ids);
            }
        }
        let Some(key) = planning.replace.as_ref().or(planning.tainted.as_ref()) else { return };
        let drained = self.current(Kind::Drain, key).and_then(super::Object::instance);
        // After `-target` of an instance, the drain is that of an instance that is gone.
        let is_of_it = drained == self.current(Kind::Instance, key).and_then(super::Object::instance);
        let stays = config.managers.contains_key(key) && drained.is_some() && is_of_it;
        let is_replaced = changes.iter().any(|change| change.kind == Kind::Instance && change.key == *key);
        // runner_drain: "The provider refuses a plan that would drain the runner of an instance that stays."
        if stays && !is_replaced {
            let how = if planning.replace.is_some() { "-replace" } else { "taint" };
            self.world.now().violation("terraform", format!("{how} of a drain was not refused"));
        }
    }

    /// runner_health: "If it fails, old drains and instances stay, and the next apply repeats the check."
    fn check_unproved(&self, config: &Config, changing: &BTreeSet<String>, new_ids: &BTreeSet<String>) {
        let instance = |key: &str, name: &str| self.attribute(Kind::Instance, key, name, changing);
        let drain = |key: &str, name: &str| self.attribute(Kind::Drain, key, name, new_ids);
        for key in config.keys(Kind::Health) {
            if self.unproved == Some(config.value(Kind::Health, &key, instance, drain)) {
                self.world.now().violation("terraform", "a failed health check is not repeated");
            }
        }
    }

    /// The cloud's provider: it removes instances from the state that do not exist.
    fn plan_instances(&mut self, config: &Config) -> Vec<Change> {
        let world = Arc::clone(&self.world);
        let world = world.now();
        self.state.retain(|object| match member(&object.value, "id") {
            Dynamic::Text(id) if object.kind == Kind::Instance => world.hosts.contains_key(id),
            _ => true,
        });
        drop(world);
        let kind = Kind::Instance;
        let mut changes = Vec::new();
        for key in config.keys(kind) {
            let wanted = config.value(kind, &key, |_, _| Dynamic::Null, |_, _| Dynamic::Null);
            let action = match self.current(kind, &key) {
                None => Action::Create,
                Some(object)
                    if object.is_tainted
                        || member(&object.value, "version") != member(&wanted, "version") =>
                {
                    Action::Replace
                }
                Some(_) => continue,
            };
            changes.push(Change { kind, key, action });
        }
        changes.extend(self.removed(config, kind));
        changes
    }

    /// The objects that the configuration does not have.
    fn removed(&self, config: &Config, kind: Kind) -> Vec<Change> {
        let keys: BTreeSet<_> = config.keys(kind).into_iter().collect();
        let change = |key: &str, action| Change { kind, key: key.to_owned(), action };
        self.of_kind(kind)
            .filter_map(|object| match object.deposed {
                Some(deposed) => Some(change(&object.key, Action::DestroyDeposed(deposed))),
                None if !keys.contains(&object.key) => Some(change(&object.key, Action::Destroy)),
                None => None,
            })
            .collect()
    }

    /// Plans all objects of one resource at the same time.
    async fn plan_kind(
        &mut self,
        process: &Process,
        config: &Config,
        kind: Kind,
        changing: &BTreeSet<String>,
        new_ids: &BTreeSet<String>,
        replace: Option<&String>,
    ) -> Result<Vec<Change>, Errors> {
        let keys: BTreeSet<_> = config.keys(kind).into_iter().collect();
        let instance = |key: &str, name: &str| self.attribute(Kind::Instance, key, name, changing);
        let drain = |key: &str, name: &str| self.attribute(Kind::Drain, key, name, new_ids);
        let stored = self.of_kind(kind).enumerate().map(|(number, object)| {
            let is_wanted = keys.contains(&object.key) && object.deposed.is_none();
            let wanted = is_wanted.then(|| config.value(kind, &object.key, instance, drain));
            let deposed = object.deposed;
            let object = object.clone();
            async move {
                process.upgrade(kind, &object.value).await?;
                let (value, private) = process.read(kind, &object.value, &object.private).await?;
                let action = match wanted {
                    None => {
                        process.plan(kind, &Dynamic::Null, &value, &private).await?;
                        Some(deposed.map_or(Action::Destroy, Action::DestroyDeposed))
                    }
                    // The plan of a tainted object has no prior state.
                    Some(wanted) if object.is_tainted => {
                        process.validate(kind, &wanted).await?;
                        process.plan(kind, &wanted, &Dynamic::Null, &private).await?;
                        Some(Action::Replace)
                    }
                    Some(wanted) => {
                        process.validate(kind, &wanted).await?;
                        let planned = process.plan(kind, &wanted, &value, &private).await?;
                        if planned.replaces || kind == Kind::Drain && replace == Some(&object.key) {
                            process.plan(kind, &wanted, &Dynamic::Null, &private).await?;
                            Some(Action::Replace)
                        } else {
                            (planned.value != value).then_some(Action::Update)
                        }
                    }
                };
                let change = action.map(|action| Change { kind, key: object.key.clone(), action });
                Ok::<_, Errors>((number, value, private, change))
            }
        });
        let stored = join_all(stored);
        let new = keys.iter().filter(|key| self.current(kind, key).is_none()).map(|key| {
            let wanted = config.value(kind, key, instance, drain);
            async move {
                process.validate(kind, &wanted).await?;
                process.plan(kind, &wanted, &Dynamic::Null, &[]).await?;
                Ok::<_, Errors>(Change { kind, key: key.clone(), action: Action::Create })
            }
        });
        let (stored, new) = futures::join!(stored, join_all(new));
        let (mut changes, mut errors, mut read) = (Vec::new(), Vec::new(), Vec::new());
        for result in stored {
            match result {
                Ok((number, value, private, change)) => {
                    changes.extend(change);
                    read.push((number, value, private));
                }
                Err(failed) => errors.extend(failed),
            }
        }
        for result in new {
            match result {
                Ok(change) => changes.push(change),
                Err(failed) => errors.extend(failed),
            }
        }
        let positions: Vec<_> = (0..self.state.len()).filter(|at| self.state[*at].kind == kind).collect();
        for (number, value, private) in read {
            let object = &mut self.state[positions[number]];
            (object.value, object.private) = (value, private);
        }
        if errors.is_empty() { Ok(changes) } else { Err(errors) }
    }

    /// The value of an attribute, which is unknown if the object changes.
    fn attribute(&self, kind: Kind, key: &str, name: &str, changing: &BTreeSet<String>) -> Dynamic {
        match self.current(kind, key) {
            Some(object) if !changing.contains(key) => member(&object.value, name).clone(),
            _ => Dynamic::Unknown,
        }
    }
}
