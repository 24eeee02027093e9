//! The generated parts of the registry pages match schema and examples. `cargo xtask gen` writes them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod pages;

use std::{fs, path::Path, sync::Arc};

use grit_plugin::{
    Block, Resource,
    schema::{Attribute, AttributeConstraint},
};
use grit_provider::testing::{
    actions::Drain,
    data_sources::{Deployment, RunnerStatus},
    resources::{Context, Grit, RunnerDrain, RunnerHealth, RunnerShutdown},
};

use grit_testkit::generated::assert_generated;
use pages::{Subject, absolute, generated, read, with_examples};

fn resource(page: &str, resource: &impl Resource) -> (String, Subject) {
    let schema = resource.schema();
    (format!("docs/resources/{page}.md"), Subject::Block("Resource", format!("grit_{page}"), schema))
}

fn data_source(page: &str, source: &impl Block) -> (String, Subject) {
    let schema = source.schema();
    (format!("docs/data-sources/{page}.md"), Subject::Block("Data Source", format!("grit_{page}"), schema))
}

fn action(page: &str, action: &impl Block) -> (String, Subject) {
    let schema = action.schema();
    (format!("docs/actions/{page}.md"), Subject::Block("Action", format!("grit_{page}"), schema))
}

/// The pages with generated parts.
fn all() -> Vec<(String, Subject)> {
    let context = Arc::<Context>::default();
    let provider = Grit { context: context.clone() }.schema();
    vec![
        ("docs/index.md".to_owned(), Subject::Provider(provider)),
        resource("runner_drain", &RunnerDrain { context: context.clone() }),
        resource("runner_health", &RunnerHealth { context: context.clone() }),
        resource("runner_shutdown", &RunnerShutdown { context: context.clone() }),
        data_source("deployment", &Deployment),
        data_source("runner_status", &RunnerStatus { context: context.clone() }),
        action("drain", &Drain { context }),
    ]
}

#[test]
fn registry_pages_match_schema_and_examples() {
    for (path, subject) in all() {
        let page = read(&path);
        assert_generated(&absolute(&path), &generated(&path, &page, &subject));
    }
}

#[test]
fn guides_match_examples() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides")).unwrap() {
        let path = format!("docs/guides/{}", entry.unwrap().file_name().into_string().unwrap());
        let page = read(&path);
        assert_generated(&absolute(&path), &with_examples(&path, &page));
    }
}

/// The inputs of the module have the type `any`, because Terraform drops what an object type does not have: nothing else compares them.
#[test]
fn module_rollout_has_every_option() {
    let module = read("examples/modules/rollout/main.tf");
    let inputs = read("examples/modules/rollout/variables.tf");
    let context = Arc::<Context>::default();
    let drain = RunnerDrain { context: context.clone() }.schema();
    let health = RunnerHealth { context }.schema();
    // The module sets the first two. Its rollouts have no use for the others.
    let own = ["timeouts", "drains"];
    for (input, schema) in [("drain", drain), ("health", health)] {
        let is_option = |attribute: &Attribute| attribute.constraint == AttributeConstraint::Optional;
        let options = schema
            .block
            .attributes
            .iter()
            .filter(|(name, attribute)| is_option(attribute) && !own.contains(&name.as_str()));
        for (name, _) in options {
            assert!(module.contains(&format!(" = try(var.{input}.{name}, ")), "{input}: {name}");
            assert!(inputs.contains(&format!("\"{name}\",")), "{input}: {name}");
        }
    }
}

#[test]
fn every_registry_page_is_generated_or_a_guide() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let known: Vec<_> = all().into_iter().map(|(path, _)| path).collect();
    for directory in ["resources", "data-sources", "actions"] {
        for entry in fs::read_dir(docs.join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                known.contains(&format!("docs/{directory}/{name}")),
                "docs/{directory}/{name} is not in `all()` of provider/tests/docs.rs: add its type there, or remove the page"
            );
        }
    }
}
