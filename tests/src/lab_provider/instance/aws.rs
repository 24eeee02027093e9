//! The state of `aws_instance`: the attributes of `hashicorp/aws` that the examples use.
//!
//! The text after `ami-` in the image name is the runner's version, and `private_ip` is the SSH address. As in the real provider, another
//! `instance_type` stops the instance and starts it again, and so does another `user_data` without `user_data_replace_on_change`.

use std::collections::BTreeMap;

use grit_plugin::schema::{AttributeType, Schema, Value, computed, optional, required, schema};
use serde::{Deserialize, Serialize};

use super::{InstanceState, text};
use crate::lab::cloud::Instance;

/// The attributes of `aws_instance`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AwsInstance {
    id: Value<String>,
    ami: Value<String>,
    instance_type: Value<String>,
    user_data: Value<String>,
    user_data_replace_on_change: Value<bool>,
    tags: Value<BTreeMap<String, Value<String>>>,
    private_ip: Value<String>,
}

impl InstanceState for AwsInstance {
    fn schema() -> Schema {
        use AttributeType::{Bool, Map, String};
        schema(
            0,
            "A VM of the lab's cloud, with the attributes of an AWS instance.",
            [
                ("id", computed(String, "Unique; never reused.")),
                ("ami", required(String, "`ami-` and the runner's version. A change replaces the instance.")),
                ("instance_type", required(String, "A change stops the instance, and starts it again.")),
                ("user_data", optional(String, "As `instance_type`.")),
                ("user_data_replace_on_change", optional(Bool, "Other user data replaces the instance.")),
                ("tags", optional(Map(Box::new(String)), "`Name` is the name of a new instance.")),
                ("private_ip", computed(String, "`host:port` of the SSH server.")),
            ],
        )
    }

    fn id(&self) -> &str {
        text(&self.id)
    }

    fn name(&self) -> &str {
        let name = self.tags.as_ref_option().and_then(|tags| tags.get("Name"));
        name.map(text).filter(|name| !name.is_empty()).unwrap_or("unnamed")
    }

    fn runner_version(&self) -> &str {
        let image = text(&self.ami);
        image.strip_prefix("ami-").unwrap_or(image)
    }

    fn planned(self) -> Self {
        Self { id: Value::Unknown, private_ip: Value::Unknown, ..self }
    }

    fn created(self, instance: Instance) -> Self {
        Self { id: Value::Value(instance.id), private_ip: Value::Value(instance.address), ..self }
    }

    fn replaced_by(&self, planned: &Self) -> Vec<&'static str> {
        let changed = [
            ("ami", self.ami != planned.ami),
            ("user_data", self.user_data != planned.user_data && planned.replaces_for_user_data()),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
    }

    fn stopped_by(&self, planned: &Self) -> bool {
        self.instance_type != planned.instance_type || self.user_data != planned.user_data
    }
}

impl AwsInstance {
    fn replaces_for_user_data(&self) -> bool {
        matches!(self.user_data_replace_on_change, Value::Value(true))
    }
}
