//! The state of `lab_instance`: all attributes of an instance of the lab's cloud.

use grit_plugin::schema::{AttributeType, Schema, Value, computed, required, schema};
use serde::{Deserialize, Serialize};

use super::{InstanceState, text};
use crate::lab::cloud::Instance;

/// The attributes of `lab_instance`; [`LabInstance::schema`](InstanceState::schema) describes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabInstance {
    id: Value<String>,
    name: Value<String>,
    runner_version: Value<String>,
    instance_name: Value<String>,
    address: Value<String>,
    wrapper_address: Value<String>,
    username: Value<String>,
    host_key: Value<String>,
}

impl InstanceState for LabInstance {
    fn schema() -> Schema {
        use AttributeType::String;
        schema(
            0,
            "A VM of the lab's cloud.",
            [
                ("id", computed(String, "Unique; never reused.")),
                ("name", required(String, "Need not be unique. A change replaces the instance.")),
                ("runner_version", required(String, "Version in the image. A change replaces the instance.")),
                ("instance_name", computed(String, "The name, made unique.")),
                ("address", computed(String, "`host:port` of the SSH server.")),
                ("wrapper_address", computed(String, "Listen address of the wrapper on the instance.")),
                ("username", computed(String, "The SSH user.")),
                ("host_key", computed(String, "The public host key.")),
            ],
        )
    }

    fn id(&self) -> &str {
        text(&self.id)
    }

    fn name(&self) -> &str {
        text(&self.name)
    }

    fn runner_version(&self) -> &str {
        text(&self.runner_version)
    }

    fn planned(self) -> Self {
        Self {
            id: Value::Unknown,
            instance_name: Value::Unknown,
            address: Value::Unknown,
            wrapper_address: Value::Unknown,
            username: Value::Unknown,
            host_key: Value::Unknown,
            ..self
        }
    }

    fn created(self, instance: Instance) -> Self {
        Self {
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

    fn replaced_by(&self, planned: &Self) -> Vec<&'static str> {
        let changed = [
            ("name", self.name != planned.name),
            ("runner_version", self.runner_version != planned.runner_version),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
    }

    fn stopped_by(&self, _: &Self) -> bool {
        false
    }
}
