//! The resource types of `hashicorp/kubernetes` that the example for Kubernetes uses: their schemas, reduced to the attributes and blocks that it names.
//! The stand-in [`kubectl`](crate::programs::kubectl) creates and deletes the objects.
//!
//! As in the real provider, a change is applied in place, and the destroy of a StatefulSet does not wait for its pods.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Command, Stdio},
};

use async_trait::async_trait;
use grit_plugin::{
    Problems, Resource,
    schema::{AttributeConstraint, AttributePath, AttributeType, BlockSchema, NestedBlock, Schema},
};
use serde_json::{Map, Value as Json, json};

use super::{
    clouds::{self, text_map, texts, with},
    failed,
};
use crate::dynamic::Dynamic;

use AttributeConstraint::{Computed, Optional, OptionalComputed, Required};
use AttributeType::{Bool, Number, String as Text};

/// A kind of object, with the schema of its resource.
pub struct Object {
    kind: &'static str,
    api: &'static str,
    block: fn() -> BlockSchema,
}

pub const SECRET: Object = Object { kind: "Secret", api: "v1", block: secret };
pub const STATEFUL_SET: Object = Object { kind: "StatefulSet", api: "apps/v1", block: stateful_set };
pub const BUDGET: Object = Object { kind: "PodDisruptionBudget", api: "policy/v1", block: budget };

/// A block whose inner blocks are lists, as all blocks of this provider.
fn block<const N: usize>(
    attributes: [(&str, AttributeConstraint, AttributeType); N],
    blocks: Vec<(&str, BlockSchema)>,
) -> BlockSchema {
    let blocks = blocks.into_iter().map(|(name, inner)| (name, NestedBlock::List(inner)));
    with(clouds::block(attributes), blocks)
}

fn metadata() -> (&'static str, BlockSchema) {
    let attributes = [
        ("name", OptionalComputed, Text),
        ("namespace", Optional, Text),
        ("labels", Optional, text_map()),
        ("annotations", Optional, text_map()),
        ("uid", Computed, Text),
    ];
    ("metadata", block(attributes, vec![]))
}

fn selector() -> (&'static str, BlockSchema) {
    ("selector", block([("match_labels", Optional, text_map())], vec![]))
}

fn secret() -> BlockSchema {
    let mut secret = block([("id", Computed, Text), ("data", Optional, text_map())], vec![metadata()]);
    if let Some(data) = secret.attributes.get_mut("data") {
        data.sensitive = true;
    }
    secret
}

fn budget() -> BlockSchema {
    let spec = block([("max_unavailable", Optional, Text)], vec![selector()]);
    block([("id", Computed, Text)], vec![metadata(), ("spec", spec)])
}

fn stateful_set() -> BlockSchema {
    let spec = block(
        [
            ("replicas", Optional, Text),
            ("service_name", Required, Text),
            ("pod_management_policy", Optional, Text),
        ],
        vec![
            ("update_strategy", block([("type", Optional, Text)], vec![])),
            selector(),
            ("template", block([], vec![metadata(), ("spec", pod())])),
        ],
    );
    let attributes = [("id", Computed, Text), ("wait_for_rollout", Optional, Bool)];
    block(attributes, vec![metadata(), ("spec", spec)])
}

fn pod() -> BlockSchema {
    let security = block(
        [("run_as_non_root", Optional, Bool), ("run_as_user", Optional, Text), ("fs_group", Optional, Text)],
        vec![("seccomp_profile", block([("type", Optional, Text)], vec![]))],
    );
    let volume = block(
        [("name", Optional, Text)],
        vec![("empty_dir", block([], vec![])), ("secret", block([("secret_name", Optional, Text)], vec![]))],
    );
    block(
        [("service_account_name", Optional, Text), ("termination_grace_period_seconds", Optional, Number)],
        vec![("security_context", security), ("container", container()), ("volume", volume)],
    )
}

fn container() -> BlockSchema {
    let probe = || {
        let times = ["initial_delay_seconds", "period_seconds", "timeout_seconds", "failure_threshold"];
        let get = block([("path", Optional, Text), ("port", Optional, Text)], vec![]);
        block(times.map(|name| (name, Optional, Number)), vec![("http_get", get)])
    };
    let security = block(
        [("allow_privilege_escalation", Optional, Bool), ("read_only_root_filesystem", Optional, Bool)],
        vec![("capabilities", block([("drop", Optional, texts())], vec![]))],
    );
    let mount = [
        ("name", Required, Text),
        ("mount_path", Required, Text),
        ("sub_path", Optional, Text),
        ("read_only", Optional, Bool),
    ];
    block(
        [("name", Required, Text), ("image", Optional, Text), ("args", Optional, texts())],
        vec![
            ("env", block([("name", Required, Text), ("value", Optional, Text)], vec![])),
            ("port", block([("name", Optional, Text), ("container_port", Required, Number)], vec![])),
            ("liveness_probe", probe()),
            ("readiness_probe", probe()),
            ("resources", block([("requests", Optional, text_map())], vec![])),
            ("security_context", security),
            ("volume_mount", block(mount, vec![])),
        ],
    )
}

#[async_trait]
impl Resource for Object {
    type State = Dynamic;

    fn schema(&self) -> Schema {
        Schema { version: 0, block: (self.block)() }
    }

    async fn plan_create(&self, mut proposed: Dynamic) -> Result<Dynamic, Problems> {
        set_uid(&mut proposed, &Dynamic::Unknown);
        set(&mut proposed, "id", Dynamic::Unknown);
        Ok(proposed)
    }

    async fn plan_update(
        &self,
        mut prior: Dynamic,
        mut proposed: Dynamic,
    ) -> Result<(Dynamic, Vec<AttributePath>), Problems> {
        let name =
            |state: &mut Dynamic| own_metadata(state).and_then(|metadata| metadata.get("name").cloned());
        let is_other = name(&mut prior) != name(&mut proposed);
        Ok((proposed, is_other.then(|| AttributePath::new("metadata")).into_iter().collect()))
    }

    async fn create(&self, mut planned: Dynamic) -> Result<Dynamic, Problems> {
        set_uid(&mut planned, &Dynamic::Text(uuid::Uuid::new_v4().to_string()));
        set(&mut planned, "id", Dynamic::Null);
        let manifest = self.manifest(&planned)?;
        set(&mut planned, "id", Dynamic::Text(format!("runners/{}", name(&manifest))));
        kubectl(&["apply", "--filename", "-"], &manifest.to_string())?;
        Ok(planned)
    }

    async fn update(&self, _: Dynamic, planned: Dynamic) -> Result<Dynamic, Problems> {
        kubectl(&["apply", "--filename", "-"], &self.manifest(&planned)?.to_string())?;
        Ok(planned)
    }

    async fn destroy(&self, prior: Dynamic) -> Result<(), Problems> {
        kubectl(&["delete", &self.kind.to_lowercase(), name(&self.manifest(&prior)?)], "")
    }
}

impl Object {
    /// The object in the form of the API.
    fn manifest(&self, state: &Dynamic) -> Result<Json, Problems> {
        let value = serde_json::to_value(state).map_err(|error| failed("Object", error.to_string()))?;
        let Json::Object(mut manifest) = converted("", value) else {
            return Err(failed("Object", "no object"));
        };
        manifest.remove("id");
        manifest.remove("waitForRollout");
        if let Some(data) = manifest.remove("data") {
            manifest.insert("stringData".to_owned(), data);
        }
        manifest.insert("apiVersion".to_owned(), json!(self.api));
        manifest.insert("kind".to_owned(), json!(self.kind));
        Ok(manifest.into())
    }
}

fn name(manifest: &Json) -> &str {
    manifest["metadata"]["name"].as_str().unwrap_or_default()
}

fn set(state: &mut Dynamic, name: &str, value: Dynamic) {
    if let Dynamic::Object(members) = state {
        members.insert(name.to_owned(), value);
    }
}

fn set_uid(state: &mut Dynamic, value: &Dynamic) {
    if let Some(metadata) = own_metadata(state) {
        metadata.insert("uid".to_owned(), value.clone());
    }
}

/// The attributes of the block `metadata` of an object.
fn own_metadata(state: &mut Dynamic) -> Option<&mut BTreeMap<String, Dynamic>> {
    let Dynamic::Object(members) = state else { return None };
    match members.get_mut("metadata")? {
        Dynamic::List(blocks) => match blocks.first_mut()? {
            Dynamic::Object(metadata) => Some(metadata),
            _ => None,
        },
        _ => None,
    }
}

/// A value of Terraform in the form of the API: blocks that can be repeated are lists with the name in plural, and others are objects.
fn converted(key: &str, value: Json) -> Json {
    match value {
        Json::Object(members)
            if ["labels", "annotations", "match_labels", "requests", "data"].contains(&key) =>
        {
            members.into()
        }
        Json::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| !value.is_null() && *value != json!([]));
            let named = kept.map(|(key, value)| {
                let name = match key.as_str() {
                    "container" | "volume" | "volume_mount" => camel(&key) + "s",
                    "port" if value.is_array() => "ports".to_owned(),
                    key => camel(key),
                };
                let value = match (key.as_str(), value) {
                    // Numbers, which are texts in this provider.
                    ("run_as_user" | "fs_group" | "replicas", Json::String(text)) => {
                        text.parse::<u64>().map_or(json!(text), Into::into)
                    }
                    (key, value) => converted(key, value),
                };
                (name, value)
            });
            named.collect::<Map<_, _>>().into()
        }
        Json::Array(mut elements) => {
            let is_list = ["container", "volume", "volume_mount", "env", "port"].contains(&key)
                || !elements.iter().all(Json::is_object);
            if is_list {
                elements.into_iter().map(|element| converted("", element)).collect()
            } else {
                elements.pop().map_or(Json::Null, |element| converted("", element))
            }
        }
        other => other,
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (head, tail) = word.split_at(1.min(word.len()));
        name + &head.to_uppercase() + tail
    })
}

fn kubectl(words: &[&str], input: &str) -> Result<(), Problems> {
    let run = || -> anyhow::Result<std::process::Output> {
        let mut command = Command::new("kubectl");
        let piped = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        Ok(child.wait_with_output()?)
    };
    match run() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed("Object of the cluster", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(failed("kubectl", format!("{error:#}"))),
    }
}
