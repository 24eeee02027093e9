//! The provider `lab`: resources that inject faults on request, to test the plugin host.
//!
//! It uses the plugin host of the real provider, so its results hold for all resources. Each resource
//! writes its events to a journal, which tests read ([`journal`]).

pub mod clouds;
pub mod echo;
pub mod instance;
pub mod journal;
pub mod local_file;
pub mod minimal;
pub mod probe;

use async_trait::async_trait;
use grit_plugin::{
    Registry,
    schema::{Diagnostics, Provider, Schema, Value, ValueString, optional, schema},
};
use serde::Deserialize;
use serde_json::json;

use self::instance::{AwsInstance, CloudUrl, InstanceResource, LabInstance};

/// Its address in Terraform configurations.
pub const ADDRESS: &str = "registry.terraform.io/runner-tools/lab";

/// The whole provider. A new resource needs one more line here and a file beside this one.
pub fn registry() -> Registry {
    let cloud = CloudUrl::default();
    Registry::new(ADDRESS, Lab { cloud: cloud.clone() })
        .resource("aws_instance", InstanceResource::<AwsInstance>::new(cloud.clone()))
        .resource("lab_instance", InstanceResource::<LabInstance>::new(cloud))
        .resource("lab_minimal", minimal::Minimal)
        .resource("lab_probe", probe::Probe)
        .resource("local_file", local_file::LocalFile)
        .data_source("lab_echo", echo::Echo)
}

/// The provider block.
struct Lab {
    cloud: CloudUrl,
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
        use grit_plugin::schema::AttributeType::String;
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
        self.cloud.configure(config.cloud.as_ref_option().map(|cloud| &**cloud));
        journal::write("configured", json!({"greeting": greeting, "terraform_version": terraform_version}));
        Some(())
    }
}
