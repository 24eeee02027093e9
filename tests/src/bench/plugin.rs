//! The start of the provider as a plugin, and its calls for the benchmark `instructions`.

use std::ops::Range;

use anyhow::{Context, ensure};
use grit_proto::tfplugin6::{
    DynamicValue, configure_provider, get_provider_schema, plan_resource_change, schema,
};
use serde_json::{Map, Value as Json, json};

use super::{Row, Settings, median, timed};
use crate::terraform::{self, Client, ClientIdentity, Plugin};

const BENCH: &str = "plugin";
const DRAIN: &str = "grit_runner_drain";

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let program = terraform::built("terraform-provider-grit")?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let identity = ClientIdentity::new()?;
    let start = || timed(|| Plugin::start(&program, folder.path(), Some(&identity.pem)));
    // The first start reads the binary from disk.
    start()?;
    let mut starts = Vec::new();
    for _ in 0..settings.samples(30) {
        starts.push(start()?.1);
    }
    Ok(vec![Row::new(BENCH, "exec to handshake line", median(&starts), "ms").budget(10.0)])
}

/// Connects, and plans a drain resource with each of these numbers.
pub(super) async fn call_often(
    plugin: &Plugin,
    identity: &ClientIdentity,
    numbers: Range<usize>,
) -> anyhow::Result<()> {
    let mut client = Client::connect(&plugin.handshake, Some(identity)).await?;
    let described = client.provider.get_provider_schema(get_provider_schema::Request {}).await?.into_inner();

    let block = |schema: Option<&grit_proto::tfplugin6::Schema>| {
        schema.and_then(|schema| schema.block.clone()).context("a schema without a block")
    };
    let config = block(described.provider.as_ref())?;
    let configure = configure_provider::Request {
        terraform_version: "1.11.4".to_owned(),
        config: Some(encode(&object(&config.attributes, &json!({})))?),
        ..configure_provider::Request::default()
    };
    client.provider.configure_provider(configure).await?;

    let block = block(described.resource_schemas.get(DRAIN))?;
    for number in numbers {
        // A second drain resource for one instance, or for one runner manager, would be refused.
        let given = json!({
            "instance_id": format!("i-{number}"),
            "runner_manager": {
                "instance_name": "m", "address": "192.0.2.1", "wrapper_address": format!("unix:///w-{number}"),
            },
        });
        let value = encode(&object(&block.attributes, &given))?;
        let request = plan_resource_change::Request {
            type_name: DRAIN.to_owned(),
            prior_state: Some(encode(&Json::Null)?),
            proposed_new_state: Some(value.clone()),
            config: Some(value),
            ..plan_resource_change::Request::default()
        };
        let answer = client.provider.plan_resource_change(request).await?.into_inner();
        ensure!(answer.diagnostics.is_empty(), "the plan has diagnostics: {:?}", answer.diagnostics);
        ensure!(answer.planned_state.is_some(), "the plan is empty");
    }
    Ok(())
}

/// An object with every attribute of a schema as Terraform sends it: those of `given`, and null for the others.
fn object(attributes: &[schema::Attribute], given: &Json) -> Json {
    let field = |attribute: &schema::Attribute| {
        let value = match (&attribute.nested_type, &given[&attribute.name]) {
            (_, Json::Null) => Json::Null,
            (Some(nested), value) => object(&nested.attributes, value),
            (None, value) => value.clone(),
        };
        (attribute.name.clone(), value)
    };
    Json::Object(attributes.iter().map(field).collect::<Map<_, _>>())
}

fn encode(value: &Json) -> anyhow::Result<DynamicValue> {
    Ok(DynamicValue { msgpack: rmp_serde::to_vec_named(value).context("encode a value")?, json: Vec::new() })
}
