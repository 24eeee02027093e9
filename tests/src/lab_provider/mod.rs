//! The provider `lab`: what a plugin host has to survive, as resources that misbehave on request.
//!
//! It is served by the same plugin host as the real provider, so what holds for its resources holds for all. Each of its resources
//! writes what happens to it into a journal, which tests wait for and read ([`journal`]).

pub mod aws_instance;
pub mod echo;
pub mod instance;
pub mod journal;
pub mod probe;

use async_trait::async_trait;
use grit_provider::{
    Registry,
    schema::{Diagnostics, Provider, Schema, Value, ValueString, optional, schema},
};
use serde::Deserialize;
use serde_json::json;

/// The address under which Terraform configurations require it.
pub const ADDRESS: &str = "registry.terraform.io/runner-tools/lab";

/// The whole provider. A new resource is one more line here, and a file beside this one.
pub fn registry() -> Registry {
    let instance = instance::LabInstance::default();
    Registry::new(ADDRESS, Lab { instance: instance.clone() })
        .resource("aws_instance", aws_instance::AwsInstance(instance.clone()))
        .resource("lab_instance", instance)
        .resource("lab_probe", probe::Probe)
        .data_source("lab_echo", echo::Echo)
}

/// The provider block.
struct Lab {
    instance: instance::LabInstance,
}

#[derive(Deserialize)]
struct Config {
    greeting: ValueString<'static>,
    cloud: ValueString<'static>,
}

#[async_trait]
impl Provider for Lab {
    type Config = Config;

    fn schema(&self, _: &mut Diagnostics) -> Option<Schema> {
        use grit_provider::schema::AttributeType::String;
        let greeting = optional(String, "Goes into the journal.");
        let cloud =
            optional(String, "URL of the lab's cloud; otherwise the environment variable `LAB_CLOUD`.");
        Some(schema(0, "A lab.", [("greeting", greeting), ("cloud", cloud)]))
    }

    async fn configure(&self, _: &mut Diagnostics, config: Config, terraform_version: &str) -> Option<()> {
        let greeting = match &config.greeting {
            Value::Value(greeting) => json!(greeting),
            Value::Null => json!(null),
            Value::Unknown => json!({"unknown": true}),
        };
        self.instance.configure(config.cloud.as_ref_option().map(|cloud| &**cloud));
        journal::write("configured", json!({"greeting": greeting, "terraform_version": terraform_version}));
        Some(())
    }
}
