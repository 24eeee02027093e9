//! The layers of the provider, read from its source.

use std::path::Path;

use grit_testkit::architecture::{assert_layers, assert_line_limit, assert_named_only_in, assert_no_circles};

/// From the highest to the lowest. A file imports its own layer and those below it.
const LAYERS: &[&[&str]] = &[
    &["lib.rs", "testing.rs"],
    &["resources/", "data_sources/", "actions/"],
    &["context.rs"],
    &["config/"],
    &["explain/", "explain.rs"],
    &["fleet/", "deployment/"],
    &["run/"],
    &["manager.rs"],
    &["client/", "gitlab/"],
    &["duration.rs", "random.rs"],
];

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

#[test]
fn imports_lead_to_the_same_layer_or_below() {
    assert_layers(Path::new(SOURCE), LAYERS);
}

#[test]
fn no_files_import_each_other() {
    assert_no_circles(Path::new(SOURCE));
}

#[test]
fn no_file_exceeds_the_line_limit() {
    assert_line_limit(Path::new(SOURCE));
}

#[test]
fn each_library_is_named_only_in_its_module() {
    for (library, places) in
        [("grit_proto::wrapper_v1", &["client/"][..]), ("grit_proto::runner_wrapper", &["client/"])]
    {
        assert_named_only_in(Path::new(SOURCE), library, places);
    }
}
