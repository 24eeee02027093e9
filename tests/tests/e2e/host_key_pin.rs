//! The configuration of docs/guides/host-keys.md that keeps the first host key of an instance.

use grit_testkit::page;
use grit_tests::terraform::Workspace;

const GUIDE: &str = include_str!("../../../docs/guides/host-keys.md");

#[test]
fn first_host_key_of_an_instance_is_kept() {
    let blocks = page::blocks(GUIDE, "terraform");
    let block = blocks.iter().find(|block| block.contains("\"pinned_host_key\"")).unwrap();
    let workspace = Workspace::new(&[]).unwrap();
    let output = "output \"host_key\" {\n  value = terraform_data.pinned_host_key.output\n}\n";
    workspace.write("main.tf", &format!("{block}\n{output}")).unwrap();
    for (instance, reported, kept) in [
        ("i-1", "key-1", "key-1"),
        ("i-1", "of a job", "key-1"),
        ("i-1", "", "key-1"),
        ("i-2", "key-2", "key-2"),
    ] {
        let locals = format!("locals {{\n  instance_id = \"{instance}\"\n  host_key = \"{reported}\"\n}}\n");
        workspace.write("locals.tf", &locals).unwrap();
        if reported != kept {
            assert_eq!(workspace.plan().unwrap().succeeded().planned(), [""; 0], "{reported}");
        }
        workspace.apply().unwrap().succeeded();
        let printed = workspace.run(["output", "-raw", "host_key"]).unwrap().succeeded().stdout;
        assert_eq!(printed, kept, "{instance}: {reported}");
    }
}
