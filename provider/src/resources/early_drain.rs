//! A drain that a health check starts before the destroy of its drain resource: what the plan of the drain resource passes to the health check.
//!
//! Terraform plans and reads a health check after all drain resources that the health check refers to. So the plan of a health check can contain
//! the drains that the run will end. The apply, which is often another process, gets this with the private data of the health check.

use grit_plugin::schema::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    config::{drain::DrainOptions, guard::GuardArgs, text::set},
    manager::WrapperIdentity,
};

/// The part of the first request that is an option of the drain resource. It is stored as private data, so it has no secrets: a health check sends
/// no callback, which the destroy adds, and starts no drain whose peers have keys of their own.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EarlyDrain {
    pub(super) instance: String,
    pub(super) manager: WrapperIdentity,
    mode: Value<String>,
    reason: Value<String>,
    guard: Value<GuardArgs>,
    /// The destroy adds a callback.
    pub(super) has_callback: bool,
}

impl EarlyDrain {
    /// `None`: only the destroy has all that the request needs.
    pub(super) fn new(instance: &str, manager: WrapperIdentity, options: &DrainOptions) -> Option<Self> {
        let peers = options.guard.as_ref_option().into_iter().flat_map(|guard| guard.peers.iter().flatten());
        let mut peers = peers.filter_map(|(_, peer)| peer.as_ref_option());
        if peers.any(|peer| set(&peer.ssh_key_pem).is_some()) {
            return None;
        }
        Some(Self {
            instance: instance.to_owned(),
            manager,
            mode: options.mode.clone(),
            reason: options.reason.clone(),
            guard: options.guard.clone(),
            has_callback: options.shutdown_callback.is_value(),
        })
    }

    pub(super) fn options(&self) -> DrainOptions {
        DrainOptions {
            mode: self.mode.clone(),
            guard: self.guard.clone(),
            reason: self.reason.clone(),
            ..DrainOptions::default()
        }
    }

    /// As private data.
    pub(super) fn to_json(&self) -> Option<Json> {
        serde_json::to_value(self).ok()
    }

    pub(super) fn of_json(json: &Json) -> Option<Self> {
        Self::deserialize(json).ok()
    }
}

/// Whether the environment sets `-parallelism` for the commands that apply.
pub(super) fn parallelism_is_set() -> bool {
    let names = ["TF_CLI_ARGS", "TF_CLI_ARGS_plan", "TF_CLI_ARGS_apply", "TF_CLI_ARGS_destroy"];
    names.iter().any(|name| std::env::var(name).is_ok_and(|arguments| arguments.contains("-parallelism")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::{callback::CallbackArgs, manager::RunnerManagerArgs};

    #[test]
    fn private_data_of_a_drain_has_no_secret() {
        let text = |text: &str| Value::Value(text.to_owned());
        let peer = RunnerManagerArgs { address: text("10.0.0.8"), ..RunnerManagerArgs::default() };
        let guard = |peer: &RunnerManagerArgs| {
            let peers = BTreeMap::from([("m2".to_owned(), Value::Value(peer.clone()))]);
            Value::Value(GuardArgs { peers: Value::Value(peers), ..GuardArgs::default() })
        };
        let headers = BTreeMap::from([("Authorization".to_owned(), text("hunter2"))]);
        let callback = Value::Value(CallbackArgs {
            url: text("https://hunter2.example"),
            headers: Value::Value(headers),
            ..CallbackArgs::default()
        });
        let (without_key, with_key) =
            (guard(&peer), guard(&RunnerManagerArgs { ssh_key_pem: text("hunter2"), ..peer.clone() }));
        let of = |guard| {
            let options = DrainOptions {
                guard,
                shutdown_callback: callback.clone(),
                reason: text("roll"),
                ..DrainOptions::default()
            };
            EarlyDrain::new("i-1", WrapperIdentity::example("h w"), &options)
        };
        assert!(of(with_key).is_none());
        let early = of(without_key).unwrap();
        let json = early.to_json().unwrap();
        assert!(!json.to_string().contains("hunter2"), "{json}");
        assert!(EarlyDrain::of_json(&json).unwrap() == early && early.has_callback);
        assert_eq!(EarlyDrain::of_json(&Json::Null).map(|_| ()), None);
    }
}
