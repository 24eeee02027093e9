//! The attributes of a drain resource, their checks, and their conversion.

use std::time::Duration;

use grit_plugin::{
    call,
    schema::{Schema, Value, computed_text, object, object_schema, required_object, required_text},
};
use grit_ssh::Selectors;

use crate::{
    config::{
        drain::{DRAIN_TIMEOUT, DrainOptions},
        enum_attribute::member,
        manager::RunnerManagerArgs,
        object::{check_object, check_required, object},
        provider_block::Configuration,
        text::check_text,
        timeouts::DeleteTimeout,
    },
    duration::human,
    explain::drain::{self, Planned},
    manager::{InvalidManager, Manager},
};

object! {
    /// State and configuration. Has no `Debug`: the runner manager may contain a private key.
    pub struct DrainState {
        pub(super) id: Value<String> = computed_text =>
            "Unique identifier: `<instance_name>@<address>#<random>`.";
        pub(super) instance_id: Value<String> = required_text =>
            "Identifier of the instance. Only a change of this attribute replaces the resource. The replacement drains the old runner. \
             Use an identifier that is known at plan time and changes only when the instance is replaced.", check_text;
        pub(super) runner_manager: Value<RunnerManagerArgs> = required_object(RunnerManagerArgs::attributes()) =>
            "The runner manager to drain: an entry of GRIT's `grit_runner_managers`.", check_required;
        pub(super) timeouts: Value<DeleteTimeout> = object(DeleteTimeout::attributes(&human(DRAIN_TIMEOUT))) =>
            "Timeouts.", check_object;
        ..pub(super) options: DrainOptions;
    }
}

impl DrainState {
    /// The instance. An empty id counts as none: a drain resource that was stored with it is updated in place.
    pub(super) fn instance(&self) -> Option<&str> {
        self.instance_id.as_ref_option().map(String::as_str).filter(|instance| !instance.is_empty())
    }

    /// The ids that `GRIT_ASSUME_TERMINATED` can contain for this drain: of the instance, and its own.
    pub(super) fn identifiers(&self) -> impl Iterator<Item = &str> {
        self.instance().into_iter().chain(Some(self.id()).filter(|id| !id.is_empty()))
    }

    /// Whether its runner manager has valid addresses.
    pub(super) fn has_addresses(&self) -> bool {
        let manager = self.runner_manager.as_ref_option();
        manager.is_some_and(|manager| manager.identity(Selectors::default()).is_some())
    }

    /// The id of the drain resource; empty while it is planned.
    pub(super) fn id(&self) -> &str {
        self.id.as_ref_option().map_or("", String::as_str)
    }

    /// The name for messages: the name of the instance, its id, or the id of the drain resource.
    pub(super) fn name(&self) -> String {
        let manager = self.runner_manager.as_ref_option();
        let name =
            manager.and_then(|manager| manager.instance_name.as_ref_option()).filter(|name| !name.is_empty());
        name.map(String::as_str).or_else(|| self.instance()).unwrap_or_else(|| self.id()).to_owned()
    }

    /// The host, for messages and the id.
    pub(super) fn address(&self) -> &str {
        let manager = self.runner_manager.as_ref_option();
        manager.and_then(RunnerManagerArgs::host).unwrap_or("(unknown)")
    }

    /// The runner manager for a connection; or the invalid attribute, and why it is invalid.
    pub(super) fn resolve(&self, configuration: &Configuration) -> Result<Manager, (String, String)> {
        let Value::Value(manager) = &self.runner_manager else {
            return Err(("runner_manager".to_owned(), "it has no value".to_owned()));
        };
        manager.resolve(&self.name(), configuration).map_err(|InvalidManager { attribute, problem }| {
            (format!("runner_manager.{attribute}"), problem.to_string())
        })
    }

    pub(super) fn timeout(&self) -> Duration {
        DeleteTimeout::delete(&self.timeouts, DRAIN_TIMEOUT)
    }

    /// The options that a shutdown resource also has.
    pub(super) fn options(&self) -> &DrainOptions {
        &self.options
    }

    /// Warns that a destroy drains the runner, if this is not usual in a rollout. `next` is the planned instance id.
    pub(super) fn warn_of_drain(&self, next: Option<&Value<String>>, health_ends: bool) {
        let planned = Planned {
            mode: member(&self.options.mode),
            timeout: self.timeout(),
            on_timeout: member(&self.options.on_timeout),
            health_ends,
            unknown_instance: next.is_some_and(Value::is_unknown),
        };
        if let Some(warning) = drain::planned(&self.name(), self.address(), &planned) {
            call().warn(warning);
        }
    }
}

pub(super) fn schema() -> Schema {
    object_schema(
        0,
        "Drains one runner manager when this resource is destroyed: the runner is shut down gracefully, and the destroy completes when \
         the runner's process has exited. Only then does Terraform destroy the objects that this resource refers to, such as the \
         instance.",
        DrainState::attributes(),
    )
}
