//! The provider `lab`: resources that inject faults on request, to test the plugin host.
//!
//! It uses the plugin host of the real provider, so its results hold for all resources. Each resource
//! writes its events to a journal, which tests read ([`journal`]).

pub mod clouds;
pub mod echo;
pub mod instance;
pub mod journal;
pub mod kubernetes;
pub mod local_file;
pub mod probe;

use async_trait::async_trait;
use grit_plugin::{
    Block, Problem, Problems, Registry,
    schema::{Schema, Value, optional, schema},
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
        .resource("kubernetes_pod_disruption_budget_v1", kubernetes::BUDGET)
        .resource("kubernetes_secret_v1", kubernetes::SECRET)
        .resource("kubernetes_stateful_set_v1", kubernetes::STATEFUL_SET)
        .resource("lab_instance", InstanceResource::<LabInstance>::new(cloud))
        .resource("lab_probe", probe::Probe)
        .resource("local_file", local_file::LocalFile)
        .data_source("lab_echo", echo::Echo)
}

/// A failure on purpose.
fn failed(summary: &str, happened: impl Into<String>) -> Problems {
    Problem::new("lab", summary, happened, "").into()
}

/// The provider block.
struct Lab {
    cloud: CloudUrl,
}

#[derive(Deserialize)]
struct Config {
    greeting: Value<String>,
    cloud: Value<String>,
    /// Of `hashicorp/kubernetes`; without effect.
    #[serde(rename = "config_path")]
    _path: Value<String>,
    #[serde(rename = "config_context")]
    _context: Value<String>,
}

#[async_trait]
impl Block for Lab {
    type Config = Config;
    type Output = ();

    fn schema(&self) -> Schema {
        use grit_plugin::schema::AttributeType::String;
        let greeting = optional(String, "Goes into the journal.");
        let cloud =
            optional(String, "URL of the lab's cloud; otherwise the environment variable `LAB_CLOUD`.");
        let [path, context] = [(); 2].map(|()| optional(String, "Of `hashicorp/kubernetes`."));
        let attributes =
            [("greeting", greeting), ("cloud", cloud), ("config_path", path), ("config_context", context)];
        schema(0, "A lab.", attributes)
    }

    async fn run(&self, config: Config) -> Result<(), Problems> {
        let greeting = match &config.greeting {
            Value::Value(greeting) => json!(greeting),
            Value::Null => json!(null),
            Value::Unknown => json!({"unknown": true}),
        };
        self.cloud.configure(config.cloud.as_ref_option().map(String::as_str));
        journal::write("configured", json!({"greeting": greeting}));
        Ok(())
    }
}
