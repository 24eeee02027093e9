//! Workspaces with the provider `lab`, for the promises of the plugin host.

use std::time::Duration;

use grit_tests::terraform::Workspace;

/// A test that works never waits so long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// For what happens at once, on a machine that is busy.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A workspace whose configuration requires `lab`.
#[track_caller]
pub(crate) fn lab(configuration: &str) -> Workspace {
    let lab = Workspace::new(&["lab"]).unwrap();
    lab.write("main.tf", &with_header(configuration)).unwrap();
    lab
}

/// A configuration that requires `lab`.
pub(crate) fn with_header(configuration: &str) -> String {
    const HEADER: &str =
        "terraform {\n  required_providers {\n    lab = { source = \"runner-tools/lab\" }\n  }\n}\n";
    format!("{HEADER}{configuration}")
}

/// The block of a `lab_probe` called and named `name`, with more arguments.
pub(crate) fn probe(name: &str, arguments: &str) -> String {
    format!("resource \"lab_probe\" \"{name}\" {{\n  name = \"{name}\"\n  {arguments}\n}}\n")
}
