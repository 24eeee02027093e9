//! `lab_instance`: a VM of the lab's cloud, as `aws_instance` is one of a real one. See [`crate::lab::cloud`].
//!
//! Its create returns when the boot has begun, its destroy when nothing is left of the host: so the removal of an instance stands in
//! the lab's event log, in order, also when the instance is the deposed half of a replacement.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use grit_provider::{
    call::call,
    schema::{
        AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Resource, ResourceExt, Schema, Value,
        ValueEmpty, computed, required, schema,
    },
};
use serde::{Deserialize, Serialize};

use crate::lab::cloud::{Instance, api};

/// The environment variable that names the cloud where the provider block is silent.
pub const CLOUD: &str = "LAB_CLOUD";

/// The resource. The URL of the cloud comes with the provider's configuration.
#[derive(Debug, Default, Clone)]
pub struct LabInstance {
    cloud: Arc<Mutex<Option<String>>>,
}

/// Its attributes; [`LabInstance::schema`](Resource::schema) describes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    id: Value<String>,
    name: Value<String>,
    runner_version: Value<String>,
    instance_name: Value<String>,
    address: Value<String>,
    wrapper_address: Value<String>,
    username: Value<String>,
    host_key: Value<String>,
}

impl LabInstance {
    /// Takes over the URL from the provider block.
    pub fn configure(&self, cloud: Option<&str>) {
        *self.cloud.lock().unwrap_or_else(PoisonError::into_inner) = cloud.map(str::to_owned);
    }

    /// The URL of the cloud; without one there is an error.
    pub(super) fn cloud(&self, diags: &mut Diagnostics) -> Option<String> {
        let configured = self.cloud.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cloud = configured.or_else(|| std::env::var(CLOUD).ok());
        if cloud.is_none() {
            diags.fail(
                "No cloud",
                format!("Set `cloud` in the provider block, or {CLOUD}, to the URL of the lab's cloud."),
            );
        }
        cloud
    }
}

impl From<Instance> for State {
    fn from(instance: Instance) -> State {
        State {
            id: Value::Value(instance.id),
            name: Value::Value(instance.name),
            runner_version: Value::Value(instance.runner_version),
            instance_name: Value::Value(instance.instance_name),
            address: Value::Value(instance.address),
            wrapper_address: Value::Value(instance.wrapper_address),
            username: Value::Value(instance.username),
            host_key: Value::Value(instance.host_key),
        }
    }
}

impl ResourceExt for LabInstance {}

#[async_trait]
impl Resource for LabInstance {
    type State<'a> = State;
    type PrivateState<'a> = ValueEmpty;
    type ProviderMetaState<'a> = ValueEmpty;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        use AttributeType::String;
        Some(schema(
            0,
            "A VM of the lab's cloud.",
            [
                ("id", computed(String, "Never used again.")),
                ("name", required(String, "Need not be unique. A change replaces.")),
                ("runner_version", required(String, "Of the image. A change replaces.")),
                ("instance_name", computed(String, "The name, made unique.")),
                ("address", computed(String, "`host:port` of SSH.")),
                ("wrapper_address", computed(String, "Where the wrapper listens on the instance.")),
                ("username", computed(String, "Who may log in.")),
                ("host_key", computed(String, "The public host key.")),
            ],
        ))
    }

    async fn validate<'a>(&self, _: &mut Diagnostics, _: State) -> Option<()> {
        Some(())
    }

    async fn read<'a>(
        &self,
        diags: &mut Diagnostics,
        state: State,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(State, ValueEmpty)> {
        let cloud = self.cloud(diags)?;
        match api::read(&cloud, text(&state.id)).await {
            Ok(Some(instance)) => Some((instance.into(), private)),
            Ok(None) => {
                call().gone();
                None
            }
            Err(error) => {
                diags.fail("Instance cannot be read", format!("{error:#}"));
                None
            }
        }
    }

    async fn plan_create<'a>(
        &self,
        _: &mut Diagnostics,
        proposed: State,
        _: State,
        _: ValueEmpty,
    ) -> Option<(State, ValueEmpty)> {
        let planned = State {
            id: Value::Unknown,
            instance_name: Value::Unknown,
            address: Value::Unknown,
            wrapper_address: Value::Unknown,
            username: Value::Unknown,
            host_key: Value::Unknown,
            ..proposed
        };
        Some((planned, ValueEmpty::default()))
    }

    async fn plan_update<'a>(
        &self,
        _: &mut Diagnostics,
        prior: State,
        proposed: State,
        _: State,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(State, ValueEmpty, Vec<AttributePath>)> {
        let changed = [
            ("name", prior.name != proposed.name),
            ("runner_version", prior.runner_version != proposed.runner_version),
        ];
        let replace =
            changed.iter().filter(|(_, changed)| *changed).map(|(name, _)| AttributePath::new(*name));
        Some((proposed, private, replace.collect()))
    }

    async fn plan_destroy<'a>(
        &self,
        _: &mut Diagnostics,
        _: State,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<ValueEmpty> {
        Some(private)
    }

    async fn create<'a>(
        &self,
        diags: &mut Diagnostics,
        planned: State,
        _: State,
        private: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(State, ValueEmpty)> {
        let cloud = self.cloud(diags)?;
        match api::create(&cloud, text(&planned.name), text(&planned.runner_version)).await {
            Ok(instance) => Some((instance.into(), private)),
            Err(error) => {
                diags.fail("Instance was not created", format!("{error:#}"));
                None
            }
        }
    }

    async fn update<'a>(
        &self,
        diags: &mut Diagnostics,
        _: State,
        _: State,
        _: State,
        _: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<(State, ValueEmpty)> {
        diags.fail(
            "Instance cannot be updated",
            "Every change of an instance replaces it, so this call is a bug.",
        );
        None
    }

    async fn destroy<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: State,
        _: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<()> {
        let cloud = self.cloud(diags)?;
        match api::destroy(&cloud, text(&prior.id)).await {
            Ok(()) => Some(()),
            Err(error) => {
                diags.fail("Instance was not destroyed", format!("{error:#}"));
                None
            }
        }
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, id: String) -> Option<(State, ValueEmpty)> {
        let cloud = self.cloud(diags)?;
        match api::read(&cloud, &id).await {
            Ok(Some(instance)) => Some((instance.into(), ValueEmpty::default())),
            Ok(None) => {
                diags.fail("No such instance", format!("The cloud has no instance {id}."));
                None
            }
            Err(error) => {
                diags.fail("Instance cannot be read", format!("{error:#}"));
                None
            }
        }
    }
}

/// A value that is known where this is called: state, or a plan at apply.
fn text(value: &Value<String>) -> &str {
    value.as_ref_option().map_or("", String::as_str)
}
