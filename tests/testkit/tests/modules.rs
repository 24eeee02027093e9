//! The READMEs of the modules list the inputs, outputs and providers of their files.
//!
//! `cargo xtask gen` writes them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use grit_testkit::generated::assert_generated;

const BEGIN: &str = "<!-- BEGIN INPUTS AND OUTPUTS: generated, see CONTRIBUTING.md -->\n";
const END: &str = "<!-- END INPUTS AND OUTPUTS -->\n";
const EXAMPLE: (&str, &str) = ("```terraform\n", "```");

fn modules() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/modules");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut modules: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    modules.sort();
    assert!(modules.len() >= 4, "{modules:?}");
    modules
}

/// A block at the top level of a file, such as `variable "name" {`, with its arguments.
struct Block {
    name: String,
    arguments: Vec<(String, String)>,
}

impl Block {
    fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The text of a quoted argument.
    fn text(&self, name: &str) -> String {
        let text = self.argument(name).unwrap_or_else(|| panic!("{} has no {name}", self.name));
        text.trim_matches('"').replace("\\\"", "\"")
    }
}

/// All blocks of a kind. The files are formatted: arguments of a block are indented by two spaces, and what follows one by more.
fn blocks(module: &Path, file: &str, kind: &str) -> Vec<Block> {
    let source = fs::read_to_string(module.join(file)).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for line in source.lines() {
        if let Some(name) =
            line.strip_prefix(&format!("{kind} \"")).and_then(|rest| rest.strip_suffix("\" {"))
        {
            blocks.push(Block { name: name.to_owned(), arguments: Vec::new() });
            open = true;
        } else if line == "}" {
            open = false;
        } else if open && let Some(block) = blocks.last_mut() {
            let is_argument = line.starts_with("  ") && !line.starts_with("   ");
            match line.trim().split_once('=') {
                Some((name, value)) if is_argument && !line.trim().starts_with(['}', ']', ')']) => {
                    block.arguments.push((name.trim().to_owned(), value.trim().to_owned()));
                }
                _ => {
                    if let Some((_, value)) = block.arguments.last_mut() {
                        *value += &format!("\n{}", line.strip_prefix("  ").unwrap_or(line));
                    }
                }
            }
        }
    }
    assert!(!blocks.is_empty(), "{}: no {kind}", module.display());
    blocks
}

/// A type or default in a cell of a table: on one line, with commas between attributes.
fn cell(value: &str) -> String {
    let mut text = String::new();
    for line in value.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if text.ends_with(['(', '{', '[', ',']) || text.is_empty() || line.starts_with(['}', ')', ']']) {
            text += if text.is_empty() || text.ends_with('(') { "" } else { " " };
        } else {
            text += ", ";
        }
        text += &line.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    format!("`{}`", text.replace('|', "\\|"))
}

/// The part of the README that is generated.
fn generated(module: &Path) -> String {
    let mut text = BEGIN.to_owned();
    let versions = fs::read_to_string(module.join("versions.tf")).unwrap();
    let requirement = |name: &str| {
        let (_, rest) = versions.split_once(name).unwrap();
        rest.split('"').nth(1).unwrap().to_owned()
    };
    writeln!(text, "\n## Requirements\n\n| name | version |\n| --- | --- |").unwrap();
    writeln!(text, "| Terraform or OpenTofu | `{}` |", requirement("required_version")).unwrap();
    let sources: Vec<_> = versions.lines().filter_map(|line| line.trim().strip_prefix("source")).collect();
    let wanted: Vec<_> = versions.lines().filter_map(|line| line.trim().strip_prefix("version")).collect();
    for (source, version) in sources.iter().zip(&wanted) {
        let quoted = |text: &str| text.split('"').nth(1).unwrap().to_owned();
        writeln!(text, "| `{}` | `{}` |", quoted(source), quoted(version)).unwrap();
    }
    writeln!(text, "\n## Inputs\n\n| name | description | type | default |\n| --- | --- | --- | --- |")
        .unwrap();
    for input in blocks(module, "variables.tf", "variable") {
        // A validation block is not an argument; the text behind the last argument may contain one.
        let value = |name: &str| {
            input.argument(name).map(|value| cell(value.split("\n\nvalidation").next().unwrap_or(value)))
        };
        let default = value("default").unwrap_or_else(|| "required".to_owned());
        let sensitive = if input.argument("sensitive") == Some("true") { " Sensitive." } else { "" };
        let description = input.text("description");
        writeln!(
            text,
            "| `{}` | {description}{sensitive} | {} | {default} |",
            input.name,
            value("type").unwrap()
        )
        .unwrap();
    }
    writeln!(text, "\n## Outputs\n\n| name | description |\n| --- | --- |").unwrap();
    for output in blocks(module, "outputs.tf", "output") {
        let is_sensitive = output.argument("sensitive").is_some_and(|it| it.starts_with("true"));
        let sensitive = if is_sensitive { " Sensitive." } else { "" };
        writeln!(text, "| `{}` | {}{sensitive} |", output.name, output.text("description")).unwrap();
    }
    text + "\n" + END
}

/// The README with its generated parts.
fn wanted(module: &Path, readme: &str) -> String {
    let (before, rest) =
        readme.split_once(BEGIN).unwrap_or_else(|| panic!("{}: no {BEGIN}", module.display()));
    let (_, after) = rest.split_once(END).unwrap();
    let mut before = before.to_owned();
    if let Ok(example) = fs::read_to_string(module.join("examples/basic/main.tf")) {
        let (text, rest) = before.split_once(EXAMPLE.0).unwrap();
        let (_, rest) = rest.split_once(EXAMPLE.1).unwrap();
        before = format!("{text}{}{example}{}{rest}", EXAMPLE.0, EXAMPLE.1);
    }
    before + &generated(module) + after
}

#[test]
fn readmes_match_the_files_of_the_modules() {
    for module in modules() {
        let path = module.join("README.md");
        let readme = fs::read_to_string(&path).unwrap();
        assert_generated(&path, &wanted(&module, &readme));
    }
}
