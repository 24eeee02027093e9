//! The layers of the provider, read from its source.

use std::path::Path;

use grit_testkit::architecture::{Architecture, MAX_FILE_LINES, long_files};

/// From the highest to the lowest. A file imports its own layer and those below it.
const LAYERS: &[&[&str]] = &[
    &["lib.rs", "testing.rs"],
    &["resources/", "data_sources/", "functions/", "actions/"],
    &["context.rs"],
    &["config/"],
    &["explain/", "explain.rs"],
    &["fleet/", "deployment/"],
    &["run/"],
    &["manager.rs"],
    &["client/", "gitlab/"],
    &["duration.rs"],
];

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

fn provider() -> Architecture {
    Architecture::read(Path::new(SOURCE))
}

#[test]
fn imports_lead_to_the_same_layer_or_below() {
    let found = provider().imports_that_run_up(LAYERS);
    assert!(
        found.is_empty(),
        "A file may import its own layer and those below it, in this order: resources, context, config, \
         explain, fleet, run, manager, client. Move the item down, or pass it as an argument:\n{}",
        found.join("\n")
    );
}

#[test]
fn no_files_import_each_other() {
    let circles = provider().circles();
    assert!(
        circles.is_empty(),
        "Files must not import each other, directly or through others. Move what both need into a file of its own:\n{circles:#?}"
    );
}

#[test]
fn each_library_is_named_only_in_its_module() {
    let architecture = provider();
    for (library, places) in
        [("grit_proto::wrapper_v1", &["client/"][..]), ("grit_proto::runner_wrapper", &["client/"])]
    {
        let uses = architecture.files_that_use(&[library]);
        assert!(!uses.is_empty(), "{library} is not used: the rule checks nothing");
        let elsewhere: Vec<_> =
            uses.iter().filter(|(file, _)| !places.iter().any(|place| file.starts_with(place))).collect();
        assert!(elsewhere.is_empty(), "only {places:?} may name {library}: {elsewhere:#?}");
    }
}

#[test]
fn no_file_exceeds_the_line_limit() {
    let found = long_files(Path::new(SOURCE));
    assert!(
        found.is_empty(),
        "A source file has at most {MAX_FILE_LINES} lines, tests included. Split it by subject, or move its tests to `tests.rs`:\n{}",
        found.join("\n")
    );
}
