//! The attributes of a drain resource, their checks, and their conversion.

use std::time::Duration;

use grit_plugin::{
    Problems, attribute_map, call,
    schema::{
        AttributePath, Schema, Value, computed_text, object, object_schema, required_object, required_text,
    },
};
use grit_ssh::Selectors;
use serde::{Deserialize, Serialize};

use crate::{
    config::{
        drain::{CallbackArgs, DRAIN_TIMEOUT, DrainOptions, GuardArgs, option_attributes},
        enum_attribute::member,
        manager::RunnerManagerArgs,
        provider_block::Configuration,
        retry::RetryArgs,
        text::{check_set, check_text},
        timeouts::DeleteTimeout,
    },
    duration::human,
    explain::drain::{self, Planned},
    manager::{InvalidManager, Manager},
};

/// State and configuration. Has no `Debug`: the runner manager may contain a private key, and the callback's headers a token.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainState {
    pub(super) id: Value<String>,
    pub(super) instance_id: Value<String>,
    pub(super) runner_manager: Value<RunnerManagerArgs>,
    pub(super) mode: Value<String>,
    pub(super) on_timeout: Value<String>,
    pub(super) on_unreachable: Value<String>,
    pub(super) on_lost_jobs: Value<String>,
    pub(super) guard: Value<GuardArgs>,
    pub(super) shutdown_callback: Value<CallbackArgs>,
    pub(super) reason: Value<String>,
    pub(super) retry: Value<RetryArgs>,
    pub(super) timeouts: Value<DeleteTimeout>,
}

/// The id of a drain that was imported and not applied yet begins with this.
const IMPORTED: &str = "imported#";

impl DrainState {
    /// The state of an import: only the instance is known.
    pub(super) fn imported(instance: String, suffix: &str) -> Self {
        Self {
            id: Value::Value(format!("{IMPORTED}{suffix}")),
            instance_id: Value::Value(instance),
            ..Self::default()
        }
    }

    /// Whether the apply that completes an import has not run yet.
    pub(super) fn is_imported(&self) -> bool {
        self.id().starts_with(IMPORTED)
    }

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

    pub(super) fn address(&self) -> &str {
        let manager = self.runner_manager.as_ref_option();
        manager.and_then(|manager| manager.address.as_ref_option()).map_or("(unknown)", String::as_str)
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

    /// The options that a shutdown resource has, too.
    pub(super) fn options(&self) -> DrainOptions<'_> {
        DrainOptions {
            mode: &self.mode,
            on_timeout: &self.on_timeout,
            on_unreachable: &self.on_unreachable,
            on_lost_jobs: &self.on_lost_jobs,
            guard: &self.guard,
            shutdown_callback: &self.shutdown_callback,
            reason: &self.reason,
            retry: &self.retry,
        }
    }

    pub(super) fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        check_text(&self.instance_id, AttributePath::new("instance_id"), &mut problems);
        check_set(&self.runner_manager, AttributePath::new("runner_manager"), &mut problems);
        if let Value::Value(manager) = &self.runner_manager {
            manager.check(&AttributePath::new("runner_manager"), &mut problems);
        }
        self.options().check(&mut problems);
        DeleteTimeout::check(&self.timeouts, &mut problems);
        problems.or(())
    }

    /// Warns that a destroy drains the runner. `next` is the planned instance id.
    pub(super) fn warn_of_drain(&self, next: Option<&Value<String>>) {
        let planned = Planned {
            mode: member(&self.mode),
            timeout: self.timeout(),
            on_timeout: member(&self.on_timeout),
            unknown_instance: next.is_some_and(Value::is_unknown),
        };
        call().warn(drain::planned(&self.name(), self.address(), &planned));
    }
}

pub(super) fn schema() -> Schema {
    let mut schema = object_schema(
        0,
        "Drains one runner manager when this resource is destroyed: the runner is shut down gracefully, and the destroy completes when its \
         process has exited. Terraform destroys the objects that this resource refers to, above all the instance, only after that.",
        attribute_map! {
            id: computed_text =>
                "Unique identifier: `<instance_name>@<address>#<random>`.",
            instance_id: required_text =>
                "Identifier of the instance. This is the only attribute whose change replaces the resource, and so drains the old \
                 runner. Use an identifier that is known at plan time and changes only when the instance is replaced.",
            runner_manager: required_object(RunnerManagerArgs::attributes()) =>
                "The runner manager to drain: an entry of GRIT's `grit_runner_managers`.",
            timeouts: object(DeleteTimeout::attributes(&human(DRAIN_TIMEOUT))) => "Timeouts.",
        },
    );
    schema.block.attributes.extend(option_attributes());
    schema
}
