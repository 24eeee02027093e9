//! The registry pages name every attribute, and show the examples as they stand under `examples/`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use grit_provider::{
    config::{Grit, Shared},
    resources::{RunnerDrain, RunnerHealth},
    schema::{Attribute, AttributeConstraint, AttributeType, Diagnostics, Provider, Resource, Schema},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every attribute of the page that the schema has, at any depth, as ``- `name` (type…)``.
fn check_attributes(page: &str, attributes: &HashMap<String, Attribute>) {
    let text = read(page);
    for (name, attribute) in attributes {
        let entry = text.lines().find(|line| line.trim_start().starts_with(&format!("- `{name}` (")));
        let nested = match &attribute.attr_type {
            AttributeType::AttributeSingle(nested)
            | AttributeType::AttributeMap(nested)
            | AttributeType::AttributeList(nested)
            | AttributeType::AttributeSet(nested) => Some(nested),
            _ => None,
        };
        let Some(entry) = entry else {
            // Objects that another page describes are referred to in words, with their attributes between backticks.
            assert!(text.contains(&format!("`{name}`")), "{page} does not mention `{name}`");
            continue;
        };
        let in_text = |word: &str| entry.split(')').next().unwrap_or_default().contains(word);
        assert_eq!(in_text("sensitive"), attribute.sensitive, "{page}: is `{name}` sensitive?");
        if let Some(nested) = nested
            && !text.contains("in the shape of")
        {
            check_attributes(page, nested);
        }
        assert!(
            attribute.constraint != AttributeConstraint::Computed || !in_text("required"),
            "{page}: `{name}` is computed"
        );
    }
}

fn schema_of(resource: &impl Resource) -> Schema {
    resource.schema(&mut Diagnostics::default()).unwrap()
}

#[test]
fn pages_name_every_attribute() {
    let shared = Arc::<Shared>::default();
    let provider = Grit::new(shared.clone()).schema(&mut Diagnostics::default()).unwrap();
    check_attributes("docs/index.md", &provider.block.attributes);
    let drain = schema_of(&RunnerDrain::new(shared.clone()));
    check_attributes("docs/resources/runner_drain.md", &drain.block.attributes);
    let health = schema_of(&RunnerHealth::new(shared));
    check_attributes("docs/resources/runner_health.md", &health.block.attributes);
}

#[test]
fn pages_show_the_examples_as_they_are() {
    for (page, example) in [
        ("docs/index.md", "examples/provider/provider.tf"),
        ("docs/resources/runner_drain.md", "examples/resources/grit_runner_drain/resource.tf"),
        ("docs/resources/runner_health.md", "examples/resources/grit_runner_health/resource.tf"),
    ] {
        let block = format!("```terraform\n{}```", read(example));
        assert!(read(page).contains(&block), "{page} does not show {example} as it is");
    }
}
