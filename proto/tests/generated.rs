//! The committed code under `src/gen/` is what the `.proto` files generate.

use std::{fs, path::Path};

/// The messages that the wrapper also writes as JSON.
const JSON: [&str; 10] = [
    "Status",
    "CancelledDrain",
    "Registration",
    "Exit",
    "Health",
    "JobRouter",
    "OldestJob",
    "Drain",
    "DrainResponse",
    "Job",
];

/// How their fields look in JSON, where that differs from their types.
const JSON_FIELDS: [(&str, &str); 18] = [
    ("Status.state", "serialize_with = \"crate::json::state\""),
    ("Status.started_at", "serialize_with = \"crate::json::time\""),
    ("Status.process", "skip"),
    ("Status.boot_id", "skip"),
    ("CancelledDrain.cancelled_at", "serialize_with = \"crate::json::time\""),
    ("Exit.how", "rename_all = \"snake_case\""),
    ("Health.level", "serialize_with = \"crate::json::level\""),
    ("Health.level_max", "serialize_with = \"crate::json::level\""),
    ("OldestJob.age", "rename = \"age_seconds\", serialize_with = \"crate::json::seconds\""),
    ("Drain.mode", "serialize_with = \"crate::json::mode\""),
    ("Drain.requested_at", "serialize_with = \"crate::json::time\""),
    ("Drain.deadline", "serialize_with = \"crate::json::time\""),
    ("Drain.until_deadline", "skip"),
    ("Drain.outcome", "serialize_with = \"crate::json::outcome\""),
    ("Drain.waits_for", "serialize_with = \"crate::json::text\""),
    ("DrainResponse.status", "flatten"),
    ("DrainResponse.joined_id", "serialize_with = \"crate::json::text\""),
    ("Job.age", "rename = \"age_seconds\", serialize_with = \"crate::json::seconds\""),
];

const SOURCES: [&str; 4] = [
    "tfplugin/tfplugin6.proto",
    "tfplugin/goplugin.proto",
    "upstream/runner_wrapper.proto",
    "wrapper/v1/wrapper.proto",
];

#[test]
fn generated_code_matches_proto_definitions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().unwrap();
    let descriptors = protox::compile(SOURCES, [root]).unwrap();
    let mut build = tonic_prost_build::configure();
    for message in JSON {
        build = build.type_attribute(format!(".grit.wrapper.v1.{message}"), "#[derive(serde::Serialize)]");
    }
    for (path, attribute) in JSON_FIELDS {
        let (path, attribute) = (format!(".grit.wrapper.v1.{path}"), format!("#[serde({attribute})]"));
        build = match path.ends_with(".how") {
            true => build.enum_attribute(path, attribute),
            false => build.field_attribute(path, attribute),
        };
    }
    build
        .build_client(true)
        .build_server(true)
        // An RPC that we do not implement answers "Unimplemented", which Terraform accepts for every optional one.
        .generate_default_stubs(true)
        .out_dir(fresh.path())
        .compile_fds(descriptors)
        .unwrap();

    let committed = root.join("src/gen");
    let update = std::env::var_os("GRIT_UPDATE_GENERATED").is_some();
    let mut names: Vec<_> = fs::read_dir(fresh.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    for name in &names {
        let wanted = fs::read_to_string(fresh.path().join(name)).unwrap();
        let path = committed.join(name);
        if update {
            fs::write(&path, &wanted).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == wanted, "{} is stale: run `cargo xtask gen`", path.display());
    }
    for entry in fs::read_dir(&committed).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(names.contains(&name), "src/gen/{} comes from no definition", name.to_string_lossy());
    }
}
