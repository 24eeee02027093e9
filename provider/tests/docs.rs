//! The registry pages describe the schema: every attribute at its place, with its type, default and sensitivity, and nothing that the
//! schema does not have. The pages contain the files of `examples/` unchanged.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod pages;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use grit_provider::{
    schema::{
        Action, Attribute, AttributeConstraint, AttributeType, DataSource, Diagnostics, Function,
        FunctionSchema, Provider, Resource, Schema,
    },
    testing::{
        actions::{CancelDrain, Drain, Start},
        data_sources::{Deployment, RunnerStatus},
        functions::{ManagersFromGrit, ParseAddress, ValidateManagers},
        resources::{Grit, RunnerDrain, RunnerHealth, RunnerShutdown, Shared},
    },
};

use pages::{Entry, default_in, entries, read};

/// Where the object is described that another page or place refers to with "same attributes as".
const MANAGER: (&str, &str) = ("docs/resources/runner_drain.md", "runner_manager");

fn nested(attr_type: &AttributeType) -> Option<&HashMap<String, Attribute>> {
    match attr_type {
        AttributeType::AttributeSingle(nested)
        | AttributeType::AttributeMap(nested)
        | AttributeType::AttributeList(nested)
        | AttributeType::AttributeSet(nested) => Some(nested),
        _ => None,
    }
}

/// A type in the words of the pages.
fn words(attr_type: &AttributeType) -> String {
    match attr_type {
        AttributeType::String => "string".to_owned(),
        AttributeType::Bool => "bool".to_owned(),
        AttributeType::Number => "number".to_owned(),
        AttributeType::Map(of) => format!("map of {}s", words(of)),
        AttributeType::List(of) => format!("list of {}s", words(of)),
        AttributeType::Set(of) => format!("set of {}s", words(of)),
        AttributeType::AttributeSingle(_) => "object".to_owned(),
        AttributeType::AttributeMap(_) => "map of objects".to_owned(),
        AttributeType::AttributeList(_) => "list of objects".to_owned(),
        AttributeType::Object(_) => "object".to_owned(),
        AttributeType::Any => "any".to_owned(),
        other => panic!("the pages have no words for {other:?}"),
    }
}

/// What a page should say of one attribute between the parentheses.
fn meta(attribute: &Attribute) -> String {
    let mut meta = words(&attribute.attr_type);
    if attribute.constraint == AttributeConstraint::Required {
        meta += ", required";
    }
    if attribute.sensitive {
        meta += ", sensitive";
    }
    meta
}

/// Everything in which a page and a schema differ.
fn differences(
    page: &BTreeMap<String, Entry>,
    schema: &HashMap<String, Attribute>,
    path: &str,
    manager: &HashMap<String, Attribute>,
) -> Vec<String> {
    let mut found = Vec::new();
    for name in page.keys().filter(|name| !schema.contains_key(*name)) {
        found.push(format!("{path}{name} is described and does not exist"));
    }
    for (name, attribute) in schema {
        let here = format!("{path}{name}");
        let Some(entry) = page.get(name) else {
            found.push(format!("{here} is not described"));
            continue;
        };
        if entry.meta != meta(attribute) {
            found.push(format!("{here} is described as ({}) and is ({})", entry.meta, meta(attribute)));
        }
        let computed = attribute.constraint == AttributeConstraint::Computed;
        if entry.section != if computed { "Attributes" } else { "Arguments" } {
            found.push(format!("{here} stands under {}", entry.section));
        }
        let described = attribute.description.content.as_ref();
        if default_in(&entry.text) != default_in(described) {
            let (page, schema) = (default_in(&entry.text), default_in(described));
            found.push(format!("{here} has the default {schema:?}, and the page says {page:?}"));
        }
        let Some(inner) = nested(&attribute.attr_type) else { continue };
        if entry.text.contains("same attributes as") {
            let same = |one: &HashMap<String, Attribute>, other: &HashMap<String, Attribute>| {
                one.len() == other.len()
                    && one
                        .iter()
                        .all(|(name, one)| other.get(name).is_some_and(|other| meta(one) == meta(other)))
            };
            if !same(inner, manager) {
                found.push(format!("{here} does not have the attributes of {} on {}", MANAGER.1, MANAGER.0));
            }
        }
        // An entry that refers to another one lists no attributes itself; if it does, they are checked.
        if !entry.children.is_empty() || !entry.text.contains("same attributes as") {
            found.extend(differences(&entry.children, inner, &format!("{here}."), manager));
        }
    }
    found.sort();
    found
}

fn schema_of(resource: &impl Resource) -> Schema {
    resource.schema(&mut Diagnostics::default()).unwrap()
}

fn schema_of_data(source: &impl DataSource) -> Schema {
    source.schema(&mut Diagnostics::default()).unwrap()
}

fn action_attributes(action: &impl Action) -> HashMap<String, Attribute> {
    action.schema(&mut Diagnostics::default()).unwrap().block.attributes
}

/// Each page with the attributes that it describes.
fn schemas() -> [(&'static str, HashMap<String, Attribute>); 9] {
    let shared = Arc::<Shared>::default();
    let provider = Grit::new(shared.clone()).schema(&mut Diagnostics::default()).unwrap();
    [
        ("docs/index.md", provider.block.attributes),
        (MANAGER.0, schema_of(&RunnerDrain::new(shared.clone())).block.attributes),
        ("docs/resources/runner_health.md", schema_of(&RunnerHealth::new(shared.clone())).block.attributes),
        (
            "docs/resources/runner_shutdown.md",
            schema_of(&RunnerShutdown::new(shared.clone())).block.attributes,
        ),
        ("docs/data-sources/deployment.md", schema_of_data(&Deployment).block.attributes),
        (
            "docs/data-sources/runner_status.md",
            schema_of_data(&RunnerStatus::new(shared.clone())).block.attributes,
        ),
        ("docs/actions/drain.md", action_attributes(&Drain::new(shared.clone()))),
        ("docs/actions/start.md", action_attributes(&Start::new(shared.clone()))),
        ("docs/actions/cancel_drain.md", action_attributes(&CancelDrain::new(shared))),
    ]
}

#[test]
fn registry_pages_match_schema() {
    let schemas = schemas();
    let manager = nested(&schemas[1].1[MANAGER.1].attr_type).unwrap();
    for (page, schema) in &schemas {
        let found = differences(&entries(&read(page)), schema, "", manager);
        assert!(found.is_empty(), "{page}:\n{}", found.join("\n"));
    }
}

#[test]
fn page_check_finds_each_kind_of_difference() {
    let schemas = schemas();
    let manager = nested(&schemas[1].1[MANAGER.1].attr_type).unwrap();
    let page = read(MANAGER.0);
    for (right, wrong, finding) in [
        ("- `reason` (string)", "- `reasons` (string)", "reasons is described and does not exist"),
        (
            "- `url` (string, required)",
            "- `uri` (string, required)",
            "shutdown_callback.url is not described",
        ),
        (
            "- `min_healthy` (number)",
            "- `min_healthy` (string)",
            "guard.min_healthy is described as (string)",
        ),
        ("- `mode` (string)", "- `mode` (string, required)", "mode is described as (string, required)"),
        ("(string, sensitive): SSH private key", "(string): SSH private key", "ssh_key_pem is described as"),
        ("Default `POST`", "Default `GET`", "shutdown_callback.method has the default"),
        ("`graceful` (default) or `forceful`", "`graceful` or `forceful` (default)", "mode has the default"),
        (
            "- `peers` (map of objects, required)",
            "- `peers` (object, required)",
            "guard.peers is described as",
        ),
    ] {
        assert!(page.contains(right), "the page no longer says {right:?}");
        let found = differences(&entries(&page.replacen(right, wrong, 1)), &schemas[1].1, "", manager);
        assert!(found.iter().any(|line| line.contains(finding)), "{wrong:?}: {found:?}");
    }
}

#[test]
fn registry_pages_embed_examples_verbatim() {
    for (page, example) in [
        ("docs/index.md", "examples/provider/provider.tf"),
        ("docs/resources/runner_drain.md", "examples/resources/grit_runner_drain/resource.tf"),
        ("docs/resources/runner_health.md", "examples/resources/grit_runner_health/resource.tf"),
        ("docs/resources/runner_shutdown.md", "examples/resources/grit_runner_shutdown/resource.tf"),
        ("docs/data-sources/deployment.md", "examples/data-sources/grit_deployment/data-source.tf"),
        ("docs/data-sources/runner_status.md", "examples/data-sources/grit_runner_status/data-source.tf"),
        ("docs/functions/managers_from_grit.md", "examples/functions/managers_from_grit/function.tf"),
        ("docs/functions/parse_address.md", "examples/functions/parse_address/function.tf"),
        ("docs/functions/validate_managers.md", "examples/functions/validate_managers/function.tf"),
        ("docs/resources/runner_health.md", "examples/resources/grit_runner_health/canary.tf"),
        ("docs/actions/drain.md", "examples/actions/grit_drain/action.tf"),
        ("docs/actions/start.md", "examples/actions/grit_start/action.tf"),
        ("docs/actions/cancel_drain.md", "examples/actions/grit_cancel_drain/action.tf"),
    ] {
        let block = format!("```terraform\n{}```", read(example));
        assert!(read(page).contains(&block), "{page} does not show {example} as it is");
    }
}

/// What the page of a function should say of its signature, and of each parameter.
fn function_lines(name: &str, schema: &FunctionSchema) -> Vec<String> {
    let short = |kind: &AttributeType| match kind {
        AttributeType::AttributeMap(_) => "map(object)".to_owned(),
        other => words(other),
    };
    let plain = schema.parameters.iter().map(|it| (it, "", ""));
    let all: Vec<_> = plain.chain(schema.variadic.iter().map(|it| (it, "...", ", variadic"))).collect();
    let parameters: Vec<_> =
        all.iter().map(|(it, dots, _)| format!("{} {}{dots}", it.name, short(&it.kind))).collect();
    let signature = format!("```text\n{name}({}) {}\n```", parameters.join(", "), short(&schema.returns));
    let described = all.iter().map(|(it, _, more)| format!("- `{}` ({}{more}): ", it.name, words(&it.kind)));
    [format!("# {name}\n"), signature].into_iter().chain(described).collect()
}

#[test]
fn function_pages_match_schema() {
    for (name, schema) in [
        ("managers_from_grit", ManagersFromGrit.schema()),
        ("parse_address", ParseAddress.schema()),
        ("validate_managers", ValidateManagers.schema()),
    ] {
        let page = read(&format!("docs/functions/{name}.md"));
        for line in function_lines(name, &schema) {
            assert!(page.contains(&line), "the page of {name} does not have:\n{line}");
        }
    }
}
