//! Wrong values: each is refused by `terraform validate`, with all errors in one snapshot.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use grit_tests::{lab::cloud::Instance, ssh_server::KeyPair, terraform::core};
use serde_json::{Value as Json, json};

use super::Bench;

/// The diagnostics of `validate`, by the file that they point at.
fn diagnostics(bench: &Bench) -> BTreeMap<String, Vec<String>> {
    let run = bench.workspace.run(["validate", "-json"]).unwrap();
    let report: Json = serde_json::from_str(&run.stdout).unwrap();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for diagnostic in report["diagnostics"].as_array().unwrap() {
        if diagnostic["severity"] != "error" {
            continue;
        }
        let file = diagnostic["range"]["filename"].as_str().unwrap_or_else(|| panic!("{diagnostic}"));
        let text = |name: &str| diagnostic[name].as_str().unwrap_or_default();
        let text = format!("{}: {}", text("summary"), text("detail"));
        found.entry(file.trim_end_matches(".tf.json").to_owned()).or_default().push(text);
    }
    found
}

/// Each file has one block with one wrong value. All are validated at once.
#[test]
fn each_wrong_value_is_refused_at_validate() {
    let bench = Bench::new(host, Path::new("/nonexistent/key"));
    let mut files = BTreeMap::new();
    let mut kinds = vec!["resource", "data"];
    if bench.schema["action_schemas"].is_object() {
        kinds.push("action");
    }
    for kind in kinds {
        for object in bench.objects(kind) {
            let mut wrong = object.row.wrong.clone();
            if object.attribute.required && !wrong.contains(&Json::Null) {
                wrong.push(Json::Null);
            }
            assert!(!wrong.is_empty(), "{}: no wrong value", object.address());
            for (number, value) in wrong.into_iter().enumerate() {
                let name = format!("{}-{number}", object.attribute.block());
                let configuration = object.attribute.with(&object.base, value.clone());
                let block = if kind == "action" { json!({ "config": configuration }) } else { configuration };
                let file = format!("{}.{} = {value}", object.attribute.of, object.attribute.path);
                let path = format!("{}.{name}", object.attribute.of);
                bench.write(&path, &json!({ kind: { &object.attribute.of: { name: block } } }));
                files.insert(path, file);
            }
        }
    }
    let found = diagnostics(&bench);
    let accepted: Vec<_> = files.iter().filter(|(path, _)| !found.contains_key(*path)).collect();
    assert!(accepted.is_empty(), "accepted: {accepted:#?}");

    // Terraform refuses values of a wrong type itself, in the words of its version.
    let mut text = String::new();
    for (path, errors) in &found {
        let of_provider = errors.iter().filter(|error| error.contains("\n\nCode: "));
        let mut of_provider: Vec<_> = of_provider.map(|error| error.replace("\n\n", "\n")).collect();
        of_provider.sort();
        if !of_provider.is_empty() {
            writeln!(text, "# {}\n{}\n", files[path], of_provider.join("\n")).unwrap();
        }
    }
    for ([a, b], name) in
        [(["grit_runner", "grit_deployment"], "resources_and_data_sources"), (["grit_drain", "-"], "actions")]
    {
        let of_kind = text
            .split_inclusive("\n\n")
            .filter(|part| part.starts_with(&format!("# {a}")) || part.starts_with(&format!("# {b}")));
        let of_kind: String = of_kind.collect();
        assert_eq!(of_kind.is_empty(), name == "actions" && !core().has_actions(), "{name}");
        if !of_kind.is_empty() {
            insta::assert_snapshot!(format!("wrong_values_of_{name}"), of_kind);
        }
    }
}

/// A host that does not exist: nothing connects to it.
fn host(name: &str) -> Instance {
    Instance {
        id: format!("i-{name}"),
        name: name.to_owned(),
        instance_name: name.to_owned(),
        runner_version: String::new(),
        address: format!("{name}.example.com"),
        wrapper_address: format!("unix:///run/{name}.sock"),
        username: "deploy".to_owned(),
        host_key: KeyPair::generate().unwrap().public,
    }
}
