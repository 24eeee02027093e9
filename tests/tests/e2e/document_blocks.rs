//! Examples and blocks of the documents that no other test applies: one `terraform validate` accepts them all, each in a module with the
//! objects that it refers to.

use std::{fmt::Write as _, fs};

use grit_tests::terraform::{Workspace, core};

use super::example::repository;

/// A part of the combined configuration.
struct Part {
    /// An example; or a document, the language of the block, and its position among the blocks that are not examples.
    source: Source,
    /// A template with `{}` for the text, such as `locals {{}}`; empty for the text itself.
    inside: &'static str,
    /// Objects that the text refers to.
    with: String,
}

enum Source {
    Example(&'static str),
    Block(&'static str, &'static str, usize),
}

const INSTANCES: &str = "resource \"aws_instance\" \"example\" {\n  for_each = toset([\"blue-v1\"])\n  ami = \"ami-1\"\n  instance_type = \"t3.small\"\n  tags = { Name = each.key }\n}\n";
const DRAINS: &str = include_str!("../../../examples/resources/grit_runner_drain/resource.tf");
const CANARY: &str = "resource \"grit_runner_drain\" \"canary\" {\n  instance_id = \"i-1\"\n  runner_manager = { instance_name = \"canary\", address = \"h:22\", wrapper_address = \"unix:///run/w.sock\" }\n}\n";
const HEALTH: &str = "resource \"grit_runner_health\" \"example\" {\n  runner_managers = {}\n}\n";
/// The outputs of GRIT's module `google/runner`, in the module that the blocks call.
const GRIT: &str = "output \"instance_name\" {\n  value = \"m1\"\n}\noutput \"instance_id\" {\n  value = \"i-1\"\n}\noutput \"internal_ip\" {\n  value = \"10.0.0.7\"\n}\noutput \"external_ip\" {\n  value = \"\"\n}\noutput \"wrapper_address\" {\n  value = \"unix:///run/w.sock\"\n}\n";
const GRIT_SOURCE: &str = "gitlab.com/gitlab-org/ci-cd/runner-tools/grit//modules/google/runner";

fn parts() -> Vec<Part> {
    use Source::{Block, Example};
    let part = |source, inside, with: &str| Part { source, inside, with: with.to_owned() };
    let drains = format!("{DRAINS}{INSTANCES}");
    let mut parts = vec![
        part(Example("resources/grit_runner_drain/resource.tf"), "", INSTANCES),
        part(Example("resources/grit_runner_health/resource.tf"), "", &drains),
        part(Example("resources/grit_runner_health/canary.tf"), "", CANARY),
        part(Example("resources/grit_runner_shutdown/resource.tf"), "", HEALTH),
        part(Example("data-sources/grit_deployment/data-source.tf"), "", ""),
        part(Example("data-sources/grit_runner_status/data-source.tf"), "", ""),
        part(Block("docs/data-sources/deployment.md", "terraform", 0), "", ""),
        part(Block("docs/guides/drain-start.md", "terraform", 0), "", ""),
        part(Block("docs/guides/ssh.md", "terraform", 0), "", ""),
        part(Block("docs/guides/ssh.md", "terraform", 1), "", ""),
        part(
            Block("docs/guides/hosts.md", "hcl", 0),
            "resource \"grit_runner_health\" \"all\" {\n  runner_managers = {\n    m1 = {}\n  }\n}\n",
            "",
        ),
    ];
    if core().has_ephemeral_values() {
        parts.push(part(Example("provider/provider.tf"), "", ""));
    }
    parts
}

impl Source {
    fn text(&self) -> String {
        let read = |path: &str| fs::read_to_string(repository(path)).unwrap();
        match self {
            Self::Example(path) => read(&format!("examples/{path}")),
            Self::Block(document, language, position) => {
                let page = read(document);
                let fence = format!("```{language}\n");
                let blocks = page.split(&fence).collect::<Vec<_>>();
                // A block that follows the name of an example is that file.
                let blocks = blocks.windows(2).filter(|pair| !pair[0].trim_end().ends_with(".tf -->"));
                let block = blocks.map(|pair| pair[1]).nth(*position).expect(document);
                block.split("```").next().unwrap().to_owned()
            }
        }
    }
}

#[test]
fn examples_and_blocks_are_valid() {
    let workspace = Workspace::new(&["grit", "aws"]).unwrap();
    let mut main = String::new();
    for (number, Part { source, inside, with }) in parts().into_iter().enumerate() {
        let text = source.text().replace(GRIT_SOURCE, "../grit");
        let text = if inside.is_empty() { text } else { inside.replacen("{}", &text, 1) };
        let mut required = String::new();
        if !text.contains("required_providers") {
            required += "terraform {\n  required_providers {\n    grit = { source = \"runner-tools/grit\" }\n    aws = { source = \"hashicorp/aws\" }\n  }\n}\n";
        }
        workspace.write(&format!("part{number}/main.tf"), &format!("{required}{text}{with}")).unwrap();
        write!(main, "module \"part{number}\" {{\n  source = \"./part{number}\"\n").unwrap();
        let variables =
            text.lines().filter_map(|line| line.strip_prefix("variable \"")?.strip_suffix("\" {"));
        for variable in variables {
            writeln!(main, "  {variable} = null").unwrap();
        }
        main += "}\n";
    }
    workspace.write("grit/main.tf", GRIT).unwrap();
    workspace.write("known_hosts", "").unwrap();

    // Values of variables: the module checks their types.
    let values = Source::Block("docs/guides/rollout.md", "terraform", 0).text();
    for file in ["main.tf", "variables.tf", "versions.tf"] {
        let path = repository("examples/rollouts/versions-as-keys").join(file);
        workspace.write(&format!("rollout/{file}"), &fs::read_to_string(path).unwrap()).unwrap();
    }
    let names: Vec<_> =
        values.lines().filter_map(|line| line.split_once(" = ").filter(|_| !line.starts_with(' '))).collect();
    assert_eq!(names.len(), 3, "{values}");
    write!(main, "locals {{\n{values}}}\nmodule \"rollout\" {{\n  source = \"./rollout\"\n").unwrap();
    for (name, _) in names {
        writeln!(main, "  {name} = local.{name}", name = name.trim()).unwrap();
    }
    main += "}\n";

    workspace.write("main.tf", &main).unwrap();
    workspace.get().unwrap().succeeded();
    workspace.validate().unwrap().succeeded();
}
