//! The attributes of a shutdown resource, their checks, and the recorded evidence.

use std::{collections::BTreeMap, time::Duration};

use grit_plugin::schema::{
    AttributeType, Schema, Value, boolean, computed_as, computed_text, object, object_schema, text_map,
};
use grit_ssh::Selectors;
use tokio::time::Instant;

use super::evidence::Evidence;
use crate::{
    config::{
        drain::{DRAIN_TIMEOUT, DrainOptions, WAIT},
        manager::{RunnerManagerArgs, RunnerManagers, check_managers, required_managers},
        object::{check_object, object},
        timeouts::WaitTimeouts,
    },
    duration::human,
    explain::drain::Subject,
};

pub(super) const TERMINATED: &str = "terminated";
/// The shutdown of all runners is in progress or complete (`wait = false`).
pub(super) const DRAINING: &str = "draining";
/// An update failed: the next apply resumes it.
pub(super) const INCOMPLETE: &str = "incomplete";

object! {
    /// State and configuration. It has no `Debug`: a manager may contain a private key.
    pub struct ShutdownState {
        pub(super) id: Value<String> = computed_text => "Unique identifier of this resource and of its drains on the hosts.";
        pub(super) runner_managers: RunnerManagers = required_managers =>
            "The runner managers of the other deployment version. Messages identify each one by its key in this map. May be empty.",
            check_managers;
        pub(super) wait: Value<bool> = boolean => format!(
            "Wait until the runners have exited. `false`: return when each shutdown is in progress. Default `{WAIT}`."
        );
        pub(super) triggers: Value<BTreeMap<String, Value<String>>> = text_map =>
            "Arbitrary values. A change of any value repeats the shutdown for all runner managers, for example after a restart of a \
             runner.";
        pub(super) timeouts: Value<WaitTimeouts> = object(WaitTimeouts::attributes(
            &human(DRAIN_TIMEOUT),
            ": connections, the request, and the wait for the exit of the processes",
        )) => "Timeouts.", check_object;
        pub(super) status: Value<String> = computed_text =>
            "`terminated`; `draining` if shutdowns are in progress (`wait = false`); `incomplete` after a failed update, which the \
             next apply resumes.";
        pub(super) managers: Value<BTreeMap<String, Value<Evidence>>> = computed_as(AttributeType::AttributeMap(Evidence::attributes())) =>
            "Recorded exit of each runner, by key. Unknown values are null, never zero. With upstream's wrapper, `exit` and \
             `outcome` are unknown.";
        ..pub(super) options: DrainOptions;
    }
}

/// One create or update.
pub(super) struct Operation {
    /// The id of its drains on the hosts.
    pub(super) id: String,
    pub(super) subject: Subject,
    pub(super) start: Instant,
}

impl ShutdownState {
    pub(super) fn id(&self) -> &str {
        self.id.as_ref_option().map_or("", String::as_str)
    }

    /// The recorded evidence of this manager, if its entry in `planned` is the same apart from the private key.
    ///
    /// Another host can have the address of an earlier one (static addresses, DNS names). Each other difference can mean another host: the
    /// evidence then does not count, and the manager is contacted again, which has no effect on a runner that has exited.
    pub(super) fn evidence_for(&self, planned: &Self, key: &str) -> Option<&Evidence> {
        let of = |state: &'_ Self| {
            let manager = state.runner_managers.as_ref_option()?.get(key)?.as_ref_option()?;
            let others = RunnerManagerArgs {
                address: Value::Null,
                wrapper_address: Value::Null,
                ssh_key_pem: Value::Null,
                ..manager.clone()
            };
            Some((manager.identity(Selectors::default())?, others))
        };
        let is_same = of(self)? == of(planned)?;
        let evidence = self.managers.as_ref_option()?.get(key)?.as_ref_option()?;
        is_same.then_some(evidence)
    }

    pub(super) fn waits(&self) -> bool {
        self.wait.as_ref_option().copied().unwrap_or(WAIT)
    }

    pub(super) fn timeout(&self, subject: Subject) -> Duration {
        match subject {
            Subject::ShutdownUpdate => WaitTimeouts::update(&self.timeouts, DRAIN_TIMEOUT),
            Subject::ShutdownCreate | Subject::Drain | Subject::Action => {
                WaitTimeouts::create(&self.timeouts, DRAIN_TIMEOUT)
            }
        }
    }

    /// The options that a drain resource also has.
    pub(super) fn options(&self) -> &DrainOptions {
        &self.options
    }
}

pub(super) fn schema() -> Schema {
    object_schema(
        0,
        "Shuts down the runners of another deployment version when this resource is created, and waits until they have exited. An update \
         shuts down the runners of new and changed runner managers, and runners that have not exited. A change of `triggers` shuts down \
         all runners. Destroy has no effect.",
        ShutdownState::attributes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value<String> {
        Value::Value(text.to_owned())
    }

    fn shutdown_of(manager: RunnerManagerArgs) -> ShutdownState {
        let key = || "m1".to_owned();
        ShutdownState {
            runner_managers: Value::Value(BTreeMap::from([(key(), Value::Value(manager))])),
            managers: Value::Value(BTreeMap::from([(key(), Value::Value(Evidence::assumed()))])),
            ..Default::default()
        }
    }

    #[test]
    fn evidence_counts_only_for_an_unchanged_host() {
        let manager = RunnerManagerArgs {
            instance_name: text("m1"),
            address: text("m1.example.com"),
            wrapper_address: text("unix:///run/grit-wrapper/gitlab-runner.service.sock"),
            ssh_key_pem: text("old key"),
            ..Default::default()
        };
        let prior = shutdown_of(manager.clone());
        let counts = |change: fn(&mut RunnerManagerArgs)| {
            let mut planned = manager.clone();
            change(&mut planned);
            prior.evidence_for(&shutdown_of(planned), "m1").is_some()
        };
        assert!(counts(|_| {}));
        assert!(counts(|it| it.address = text("m1.example.com:22")), "the same address");
        assert!(counts(|it| it.ssh_key_pem = text("new key")), "the same host");
        assert!(!counts(|it| it.instance_name = text("m1-b")), "instance_name");
        assert!(!counts(|it| it.host_key = text("SHA256:other")), "host_key");
        assert!(!counts(|it| it.instance_id = text("i-2")), "instance_id");
        // It can select the host at an SSH gateway.
        assert!(!counts(|it| it.username = text("deploy+m1-b")), "username");
        assert!(!counts(|it| it.address = text("m2.example.com")), "address");
        assert!(!counts(|it| it.wrapper_address = text("tcp://127.0.0.1:1")), "wrapper_address");
    }
}
