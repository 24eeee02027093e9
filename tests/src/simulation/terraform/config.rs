//! The configuration of a root module, and its values.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Kind,
    values::{self, Members, exactly, members, number, seconds, text},
};
use crate::{
    dynamic::Dynamic,
    simulation::{
        options::{Level, Options},
        origin::Needs,
    },
};

/// The configuration: the runner managers by their keys, with their versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::simulation) struct Config {
    pub(in crate::simulation) managers: BTreeMap<String, u32>,
    /// False: a directory that another one retires.
    pub(in crate::simulation) has_drains: bool,
    pub(in crate::simulation) options: Options,
    /// The runner managers of the shutdown resource.
    pub(in crate::simulation) retires: BTreeMap<String, Address>,
}

/// A manager of another directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::simulation) struct Address {
    pub(in crate::simulation) instance: String,
    pub(in crate::simulation) address: String,
}

impl Config {
    /// A configuration without objects.
    pub(in crate::simulation) fn empty() -> Self {
        Self {
            managers: BTreeMap::new(),
            has_drains: true,
            options: Options::usual(),
            retires: BTreeMap::new(),
        }
    }

    pub(super) fn keys(&self, kind: Kind) -> Vec<String> {
        let one = |is_there: bool| if is_there { vec![String::new()] } else { Vec::new() };
        match kind {
            Kind::Instance => self.managers.keys().cloned().collect(),
            Kind::Drain if self.has_drains => self.managers.keys().cloned().collect(),
            Kind::Drain => Vec::new(),
            Kind::Health => one(!self.managers.is_empty()),
            Kind::Shutdown => one(!self.retires.is_empty()),
        }
    }

    /// The configuration of an object. `instance` and `drain` have the value of an attribute, which is unknown if the object changes later.
    pub(super) fn value(
        &self,
        kind: Kind,
        key: &str,
        instance: impl Fn(&str, &str) -> Dynamic,
        drain: impl Fn(&str, &str) -> Dynamic,
    ) -> Dynamic {
        let manager = |key: &str| values::manager(key, instance(key, "address"));
        let options = &self.options;
        match kind {
            Kind::Instance => {
                let version = self.managers.get(key).copied().unwrap_or_default();
                Dynamic::Object(members([("version", text(&version.to_string()))]))
            }
            Kind::Drain => {
                let own = [
                    ("id", Dynamic::Null),
                    ("instance_id", instance(key, "id")),
                    ("runner_manager", manager(key)),
                    ("timeouts", exactly([("delete", seconds(options.delete))])),
                ];
                values::drain(self.drain_options().into_iter().chain(members(own)).collect())
            }
            Kind::Health => {
                let map = |value: &dyn Fn(&str) -> Dynamic| -> Dynamic {
                    Dynamic::Object(self.managers.keys().map(|key| (key.clone(), value(key))).collect())
                };
                let timeout = || seconds(options.health);
                let is_working = options.level == Level::Working;
                values::health(members([
                    ("id", Dynamic::Null),
                    ("start_drains", Dynamic::Bool(options.start_drains)),
                    ("start_if_stopped", Dynamic::Bool(options.start_if_stopped)),
                    ("stable_for", seconds(options.stable_for)),
                    ("level", text(options.level.name())),
                    ("min_jobs", if is_working { number(options.min_jobs) } else { Dynamic::Null }),
                    ("timeouts", exactly([("create", timeout()), ("update", timeout())])),
                    ("runner_managers", map(&manager)),
                    ("drains", if self.has_drains { map(&|key| drain(key, "id")) } else { Dynamic::Null }),
                ]))
            }
            Kind::Shutdown => {
                let timeout = || seconds(options.delete);
                let own = [
                    ("runner_managers", addresses(&self.retires)),
                    ("timeouts", exactly([("create", timeout()), ("update", timeout())])),
                ];
                values::shutdown(self.drain_options().into_iter().chain(members(own)).collect())
            }
        }
    }

    /// The options of drains and of the shutdown resource.
    fn drain_options(&self) -> Members {
        let options = &self.options;
        let when = |is_set: bool, word: &str| if is_set { text(word) } else { Dynamic::Null };
        members([
            ("mode", when(options.is_forceful, "forceful")),
            ("on_timeout", when(options.forces, "force")),
            ("on_unreachable", when(options.assumes, "assume_terminated")),
            ("on_lost_jobs", options.on_lost_jobs.map_or(Dynamic::Null, text)),
            ("reason", text(&format!("rollout {}", options.reason))),
            ("retry", values::retry(options.attempts)),
        ])
    }

    /// What its health check proves.
    pub(super) fn needs(&self) -> Needs {
        let level = match self.options.level {
            Level::Process => "process",
            Level::Ready => "ready",
            Level::Polling => "polling",
            Level::Working => "working",
        };
        let min_jobs = if self.options.level == Level::Working { self.options.min_jobs } else { 0 };
        let stable_for = Duration::from_secs(self.options.stable_for.as_secs());
        Needs { level, min_jobs, stable_for }
    }
}

/// Managers of another directory, by key.
fn addresses(managers: &BTreeMap<String, Address>) -> Dynamic {
    let value = |key: &str, it: &Address| values::manager_of(key, text(&it.address), text(&it.instance));
    Dynamic::Object(managers.iter().map(|(key, it)| (key.clone(), value(key, it))).collect())
}
