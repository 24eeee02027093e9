//! `aws_instance`: stands in for the resource of `hashicorp/aws`, so that the examples are applied as they are.
//!
//! It has the attributes that the examples use, and is a VM of the lab's cloud behind them: see [`super::instance`]. The runner's version is
//! what stands behind `ami-` in the name of the image, and the address of SSH is in `private_ip`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use grit_provider::{
    call::call,
    schema::{
        AttributePath, AttributeType, Diagnostics, DiagnosticsExt, Resource, ResourceExt, Schema, Value,
        ValueEmpty, computed, optional, required, schema,
    },
};
use serde::{Deserialize, Serialize};

use super::instance::LabInstance;
use crate::lab::cloud::api;

/// The resource, over the same cloud as `lab_instance`.
#[derive(Debug, Clone)]
pub struct AwsInstance(pub LabInstance);

/// Its attributes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    id: Value<String>,
    ami: Value<String>,
    instance_type: Value<String>,
    user_data: Value<String>,
    tags: Value<BTreeMap<String, Value<String>>>,
    private_ip: Value<String>,
}

impl State {
    fn name(&self) -> String {
        let tags = self.tags.as_ref_option();
        let name = tags.and_then(|tags| tags.get("Name")).and_then(Value::as_ref_option);
        name.cloned().unwrap_or_else(|| "unnamed".to_owned())
    }

    fn runner_version(&self) -> &str {
        let image = self.ami.as_ref_option().map_or("", String::as_str);
        image.strip_prefix("ami-").unwrap_or(image)
    }
}

impl ResourceExt for AwsInstance {}

#[async_trait]
impl Resource for AwsInstance {
    type State<'a> = State;
    type PrivateState<'a> = ValueEmpty;
    type ProviderMetaState<'a> = ValueEmpty;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        use AttributeType::String;
        Some(schema(
            0,
            "A VM of the lab's cloud, with the attributes of an instance of AWS.",
            [
                ("id", computed(String, "Never used again.")),
                ("ami", required(String, "`ami-` and the version of the runner. A change replaces.")),
                ("instance_type", required(String, "Of no effect. A change replaces.")),
                ("user_data", optional(String, "Of no effect. A change replaces.")),
                (
                    "tags",
                    optional(AttributeType::Map(Box::new(String)), "`Name` is the name. A change replaces."),
                ),
                ("private_ip", computed(String, "`host:port` of SSH.")),
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
        let cloud = self.0.cloud(diags)?;
        match api::read(&cloud, state.id.as_ref_option().map_or("", String::as_str)).await {
            Ok(Some(_)) => Some((state, private)),
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
        let planned = State { id: Value::Unknown, private_ip: Value::Unknown, ..proposed };
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
        let replace = if prior == proposed { Vec::new() } else { vec![AttributePath::new("ami")] };
        Some((proposed, private, replace))
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
        let cloud = self.0.cloud(diags)?;
        match api::create(&cloud, &planned.name(), planned.runner_version()).await {
            Ok(instance) => {
                let (id, private_ip) = (Value::Value(instance.id), Value::Value(instance.address));
                Some((State { id, private_ip, ..planned }, private))
            }
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
        diags.fail("Instance cannot be updated", "Every change replaces an instance, so this call is a bug.");
        None
    }

    async fn destroy<'a>(
        &self,
        diags: &mut Diagnostics,
        prior: State,
        _: ValueEmpty,
        _: ValueEmpty,
    ) -> Option<()> {
        let cloud = self.0.cloud(diags)?;
        match api::destroy(&cloud, prior.id.as_ref_option().map_or("", String::as_str)).await {
            Ok(()) => Some(()),
            Err(error) => {
                diags.fail("Instance was not destroyed", format!("{error:#}"));
                None
            }
        }
    }

    async fn import<'a>(&self, diags: &mut Diagnostics, _: String) -> Option<(State, ValueEmpty)> {
        diags.fail("Import is not possible", "The examples import nothing, so this stand-in has none.");
        None
    }
}
