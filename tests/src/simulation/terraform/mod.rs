//! The model of Terraform: state, plan and apply, with the order of docs/adr/0002-order-of-operations.md, and the provider's real calls.

mod apply;
mod calls;
mod change;
mod config;
mod graph;
mod instance;
mod plan;
mod promises;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

pub(super) use apply::Apply;
pub(super) use calls::invoke;
pub(super) use config::{Address, Config};
pub(super) use plan::{Change, Planning, Target};

use super::world::World;
use crate::dynamic::Dynamic;
use values::member;

/// The resources of the configuration. Each refers to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Instance,
    Drain,
    Health,
    Shutdown,
}

impl Kind {
    fn type_name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Drain => "grit_runner_drain",
            Self::Health => "grit_runner_health",
            Self::Shutdown => "grit_runner_shutdown",
        }
    }

    /// The attributes that the provider sets.
    fn computed(self) -> &'static [&'static str] {
        match self {
            Self::Instance => &[],
            Self::Drain => &["id"],
            Self::Health => &["id", "status", "managers", "started_drains"],
            Self::Shutdown => &["id", "status", "managers"],
        }
    }
}

/// An object of the state.
#[derive(Clone)]
pub(super) struct Object {
    kind: Kind,
    key: String,
    /// The key of the old object of a replacement that creates first.
    deposed: Option<u32>,
    /// Its create has failed, and returned a state; or the user has run `terraform taint`.
    is_tainted: bool,
    value: Dynamic,
    private: Vec<u8>,
}

/// The result of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// The plan was refused: the titles of the errors.
    Refused(Vec<String>),
    Failed(Vec<String>),
}

/// When the user interrupts an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// SIGINT: Terraform sends StopProvider, waits for the running calls, and starts no other.
    Once(Duration),
    /// A second SIGINT some time later: the calls are cut.
    Twice(Duration, Duration),
    /// SIGKILL. A local backend has the state after the last complete step.
    Kill(Duration),
    /// With a remote backend, and with OpenTofu: the state is that before the apply.
    KillWithoutState(Duration),
}

/// A root module with its state.
pub(super) struct Terraform {
    world: Arc<World>,
    /// Distinguishes the instances of several directories.
    directory: String,
    state: Vec<Object>,
    /// `GRIT_ASSUME_TERMINATED`.
    pub(super) assumed: String,
    /// The instances that have, or had, a drain resource.
    drained: BTreeSet<String>,
    /// Why an instance may be destroyed while its runner runs: the docs name the reason.
    allowed: BTreeMap<String, &'static str>,
    /// The instances that the present apply replaces with `-target`.
    targeted: BTreeSet<String>,
    /// Instances without a drain resource are a mistake, and not the layout.
    pub(super) uses_drains: bool,
    /// The changed configuration of a health check that has not succeeded with it.
    unproved: Option<Dynamic>,
    next_instance: u32,
    next_deposed: u32,
}

impl Terraform {
    pub(super) fn new(world: Arc<World>, directory: &str) -> Self {
        Self {
            world,
            directory: directory.to_owned(),
            state: Vec::new(),
            assumed: String::new(),
            drained: BTreeSet::new(),
            allowed: BTreeMap::new(),
            targeted: BTreeSet::new(),
            uses_drains: true,
            unproved: None,
            next_instance: 0,
            next_deposed: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    fn current(&self, kind: Kind, key: &str) -> Option<&Object> {
        self.state.iter().find(|object| object.kind == kind && object.key == key && object.deposed.is_none())
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        self.state.iter().filter(move |object| object.kind == kind)
    }

    /// The instances of the state and of its drain resources: their ids.
    pub(super) fn instances(&self) -> BTreeSet<String> {
        self.state.iter().filter_map(Object::instance).collect()
    }

    /// The output `grit_runner_managers`.
    pub(super) fn output(&self) -> BTreeMap<String, Address> {
        let current = self.of_kind(Kind::Instance).filter(|object| object.deposed.is_none());
        let address = |object: &Object| {
            let (instance, address) = (object.instance()?, object.text("address")?);
            Some((format!("{}{}", self.directory, object.key), Address { instance, address }))
        };
        current.filter_map(address).collect()
    }

    /// `terraform state rm` of the drain resources whose instances are gone: the way out of a plan that is refused because of their addresses.
    pub(super) fn remove_drains_of_gone(&mut self) {
        let world = self.world.now();
        let is_gone = |object: &Object| object.instance().is_some_and(|id| !world.hosts.contains_key(&id));
        self.state.retain(|object| object.kind != Kind::Drain || !is_gone(object));
    }

    /// `terraform taint` of a drain resource.
    pub(super) fn taint_drain(&mut self, key: &str, is_tainted: bool) {
        for object in &mut self.state {
            if object.kind == Kind::Drain && object.key == key && object.deposed.is_none() {
                object.is_tainted = is_tainted;
            }
        }
    }
}

impl Object {
    /// Whether this configuration changes it.
    fn differs(&self, config: &Dynamic) -> bool {
        let Dynamic::Object(members) = config else { return false };
        let is_set = |name: &&String| !self.kind.computed().contains(&name.as_str());
        members.keys().filter(is_set).any(|name| member(&self.value, name) != member(config, name))
    }

    fn text(&self, name: &str) -> Option<String> {
        match member(&self.value, name) {
            Dynamic::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// The id of the instance that the object is, or to which it refers.
    fn instance(&self) -> Option<String> {
        match self.kind {
            Kind::Instance => self.text("id"),
            Kind::Drain => self.text("instance_id"),
            Kind::Health | Kind::Shutdown => None,
        }
    }
}
