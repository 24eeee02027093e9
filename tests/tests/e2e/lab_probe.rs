//! Workspaces with the provider `lab`, for tests of the plugin host.

use std::time::Duration;

use grit_tests::terraform::Workspace;

/// A limit for broken tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A limit for immediate events on a busy machine.
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

/// The block of a `lab_probe` with label and name `name`, and further arguments.
pub(crate) fn probe(name: &str, arguments: &str) -> String {
    format!("resource \"lab_probe\" \"{name}\" {{\n  name = \"{name}\"\n  {arguments}\n}}\n")
}
