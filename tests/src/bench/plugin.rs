//! The provider as a plugin: time from exec to the handshake line, one call, 60 resources, and memory.
//!
//! The 60 resources are `grit_runner_drain`s, whose plan and create do no I/O, so the plugin host is measured. They alternate with 60
//! `terraform_data`, which are built into Terraform, and with 60 `lab_minimal`, which have one attribute and no behaviour.
//!
//! The budget is a multiple of `lab_minimal`: what Terraform does for each external provider is not ours. For each command it creates two
//! P-521 certificates and starts the process three times or more, and it encodes, checks and prints each value of each object. With 60
//! resources, nine tenths of the CPU time of a plan are Terraform's.

use std::{fs, ops::Range, path::Path};

use anyhow::{Context, ensure};
use grit_proto::tfplugin6::{
    DynamicValue, configure_provider, get_provider_schema, plan_resource_change, schema,
};
use serde_json::{Map, Value as Json, json};

use super::{Row, Settings, median, milliseconds, timed};
use crate::terraform::{self, Client, ClientIdentity, Plugin, Workspace};

const BENCH: &str = "plugin";
const PROGRAM: &str = "terraform-provider-grit";
const DRAIN: &str = "grit_runner_drain";
const RESOURCES: usize = 60;
/// The time of drain resources is at most this multiple of the smallest resource of an external provider.
const OVER_MINIMAL: f64 = 1.5;

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let program = terraform::built(PROGRAM)?;
    let mut rows = alone(*settings, &program)?;
    rows.extend(under_terraform(*settings)?);
    let size = fs::metadata(&program).context("look at the provider's binary")?.len();
    rows.push(Row::new(BENCH, "size of the binary", size as f64 / 1e6, "MB").budget(13.0));
    Ok(rows)
}

/// The provider without Terraform.
fn alone(settings: Settings, program: &Path) -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let identity = ClientIdentity::new()?;
    let start = || timed(|| Plugin::start(program, folder.path(), Some(&identity.pem)));

    // The first start reads the binary from disk.
    start()?;
    let mut starts = Vec::new();
    let mut idle = Vec::new();
    for _ in 0..settings.samples(30) {
        let (plugin, took) = start()?;
        starts.push(took);
        idle.push(resident(plugin.id())?);
    }

    let (plugin, _) = start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let calls = settings.samples(1000);
    let (connect, planning) = runtime.block_on(call_often(&plugin, &identity, 0..calls))?;
    let busy = resident(plugin.id())?;
    Ok(vec![
        Row::new(BENCH, "exec to handshake line", median(&starts), "ms").budget(8.0),
        Row::new(BENCH, "connect: socket, TLS, schema", connect, "ms"),
        Row::new(BENCH, "one call: PlanResourceChange", median(&planning), "ms").budget(3.0),
        Row::new(BENCH, "memory after the handshake (RSS)", median(&idle), "MB"),
        Row::new(BENCH, format!("memory after {calls} calls (RSS)"), busy, "MB"),
    ])
}

/// Milliseconds to the first response, and of the plan of each resource with one of these numbers.
pub(super) async fn call_often(
    plugin: &Plugin,
    identity: &ClientIdentity,
    numbers: Range<usize>,
) -> anyhow::Result<(f64, Vec<f64>)> {
    let start = std::time::Instant::now();
    let mut client = Client::connect(&plugin.handshake, Some(identity)).await?;
    let described = client.provider.get_provider_schema(get_provider_schema::Request {}).await?.into_inner();
    let connect = milliseconds(start.elapsed());

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
    let mut took = Vec::with_capacity(numbers.len());
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
        let start = std::time::Instant::now();
        let answer = client.provider.plan_resource_change(request).await?.into_inner();
        took.push(milliseconds(start.elapsed()));
        ensure!(answer.diagnostics.is_empty(), "the plan has diagnostics: {:?}", answer.diagnostics);
        ensure!(answer.planned_state.is_some(), "the plan is empty");
    }
    Ok((connect, took))
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

/// Plans and applies of 60 resources by Terraform, alternating between the provider's and the built-in type.
fn under_terraform(settings: Settings) -> anyhow::Result<Vec<Row>> {
    let built_in = workspace(&format!(
        "resource \"terraform_data\" \"m\" {{\n  count = {RESOURCES}\n  input = {{ name = \"m-${{count.index}}\", address = \"192.0.2.1\" }}\n}}\n"
    ))?;
    let ours = workspace(&format!(
        "terraform {{\n  required_providers {{\n    grit = {{ source = \"runner-tools/grit\" }}\n  }}\n}}\n\
         resource \"{DRAIN}\" \"m\" {{\n  count = {RESOURCES}\n  instance_id = \"i-${{count.index}}\"\n  \
         runner_manager = {{ instance_name = \"m-${{count.index}}\", address = \"192.0.2.1\", wrapper_address = \"unix:///w-${{count.index}}\" }}\n}}\n"
    ))?;
    let minimal = workspace(&format!(
        "terraform {{\n  required_providers {{\n    lab = {{ source = \"runner-tools/lab\" }}\n  }}\n}}\n\
         resource \"lab_minimal\" \"m\" {{\n  count = {RESOURCES}\n  name = \"m-${{count.index}}\"\n}}\n"
    ))?;
    let mut rows = Vec::new();
    for parallelism in [10, 1] {
        let mut samples = [(); 6].map(|()| Vec::new());
        for _ in 0..settings.samples(9) {
            for (workspace, (plans, applies)) in [(&ours, (0, 1)), (&built_in, (2, 3)), (&minimal, (4, 5))] {
                samples[plans].push(command(workspace, &["plan"], parallelism)?);
                samples[applies].push(command(workspace, &["apply", "-auto-approve"], parallelism)?);
                // Removed from the state instead of destroyed: a destroy would start a drain.
                fs::remove_file(workspace.root().join("terraform.tfstate")).context("forget the state")?;
            }
        }
        let [plan, apply, plan_built_in, apply_built_in, plan_minimal, apply_minimal] =
            samples.map(|samples| median(&samples));
        for (verb, own, built_in, minimal) in
            [("plan", plan, plan_built_in, plan_minimal), ("apply", apply, apply_built_in, apply_minimal)]
        {
            let row = |own| {
                let name = format!("{verb} {RESOURCES} resources, parallelism {parallelism}");
                Row::new(BENCH, name, own, "ms")
            };
            let against = format!("{RESOURCES} terraform_data, {built_in:.0} ms");
            rows.push(row(own).against(against, built_in));
            let against = format!("{RESOURCES} lab_minimal, {minimal:.0} ms");
            rows.push(row(own).against(against, minimal).budget_ratio(OVER_MINIMAL));
        }
    }
    Ok(rows)
}

fn workspace(main: &str) -> anyhow::Result<Workspace> {
    let workspace = Workspace::new(&["grit", "lab"])?;
    workspace.write("main.tf", main)?;
    Ok(workspace)
}

fn command(workspace: &Workspace, verb: &[&str], parallelism: usize) -> anyhow::Result<f64> {
    let parallelism = format!("-parallelism={parallelism}");
    let arguments = verb.iter().copied().chain(["-input=false", &parallelism]);
    let (run, took) = timed(|| workspace.run(arguments))?;
    ensure!(run.code == Some(0), "{} failed: {}", verb[0], run.stderr);
    Ok(took)
}

/// The resident memory of a process, in MB.
fn resident(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read the provider's status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").trim().parse().context("VmRSS is no number")?;
    Ok(kib * 1024.0 / 1e6)
}
