//! The software bill of materials of a program, in SPDX 2.3 as JSON: each crate that is linked into it, with version, licence and checksum.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;

use super::{date, read};
use crate::{
    release,
    steps::{cargo, output},
};

/// Name and version of a crate.
type Crate = (String, String);

/// The crates of a program, and which crate depends on which.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tree {
    licences: BTreeMap<Crate, String>,
    dependencies: BTreeSet<(Crate, Crate)>,
}

pub(super) fn of(package: &str, version: &str, epoch: u64) -> anyhow::Result<String> {
    let mut command = cargo(&["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "depth"]);
    command.args(["--package", package, "--target", &release::host()?, "--format", "|{p}|{l}"]);
    let tree = Tree::parse(&output(&mut command)?)?;
    let checksums = checksums(&read("Cargo.lock")?);
    let revision = release::revision()?;

    let packages: Vec<_> =
        tree.licences.iter().map(|(key, licence)| entry(key, licence, checksums.get(key))).collect();
    let root =
        tree.licences.keys().find(|(name, _)| name == package).context("cargo tree lacks the program")?;
    let relation = |from: &str, kind: &str, to: &Crate| {
        format!(
            "{{\"spdxElementId\": {}, \"relationshipType\": \"{kind}\", \"relatedSpdxElement\": {}}}",
            json(from),
            json(&id(to))
        )
    };
    let mut relations = vec![relation("SPDXRef-DOCUMENT", "DESCRIBES", root)];
    relations.extend(tree.dependencies.iter().map(|(from, to)| relation(&id(from), "DEPENDS_ON", to)));
    let lines = |items: &[String]| items.join(",\n    ");
    Ok(format!(
        "{{\n  \"spdxVersion\": \"SPDX-2.3\",\n  \"dataLicense\": \"CC0-1.0\",\n  \"SPDXID\": \"SPDXRef-DOCUMENT\",\n  \
         \"name\": {name},\n  \"documentNamespace\": {namespace},\n  \"creationInfo\": {{\n    \"created\": \"{created}\",\n    \
         \"creators\": [\"Organization: runner-tools\", \"Tool: cargo xtask dist\"]\n  }},\n  \"packages\": [\n    {packages}\n  ],\n  \
         \"relationships\": [\n    {relations}\n  ]\n}}\n",
        name = json(&format!("{package} {version}")),
        namespace = json(&format!(
            "https://github.com/runner-tools/terraform-provider-grit/sbom/{package}-{version}-{revision}-{}",
            release::host()?
        )),
        created = date::iso(epoch)?,
        packages = lines(&packages),
        relations = lines(&relations),
    ))
}

fn entry(key: &Crate, licence: &str, checksum: Option<&String>) -> String {
    let (name, version) = key;
    let mut fields = vec![
        ("SPDXID", json(&id(key))),
        ("name", json(name)),
        ("versionInfo", json(version)),
        ("downloadLocation", json("NOASSERTION")),
        ("filesAnalyzed", "false".to_owned()),
        ("licenseConcluded", json("NOASSERTION")),
        ("licenseDeclared", json(&licence.replace('/', " OR "))),
        ("copyrightText", json("NOASSERTION")),
    ];
    // The crates of this project are in no registry.
    if let Some(checksum) = checksum {
        let purl = json(&format!("pkg:cargo/{name}@{version}"));
        fields.push((
            "checksums",
            format!("[{{\"algorithm\": \"SHA256\", \"checksumValue\": {}}}]", json(checksum)),
        ));
        fields.push((
            "externalRefs",
            format!(
                "[{{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": {purl}}}]"
            ),
        ));
    }
    let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}

/// An identifier of SPDX has letters, digits, `.` and `-`.
fn id((name, version): &Crate) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '.';
    format!("SPDXRef-{name}-{version}").replace(|c| !is_allowed(c), "-")
}

/// A JSON string.
fn json(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

impl Tree {
    /// Lines such as `1|tokio v1.54.0|MIT`: the depth, the crate, and its licence. `(*)` marks a crate whose dependencies were listed before.
    fn parse(text: &str) -> anyhow::Result<Tree> {
        let mut tree = Tree::default();
        let mut path: Vec<Crate> = Vec::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, '|');
            let mut part = || parts.next().with_context(|| format!("unexpected line of cargo tree: {line}"));
            let (depth, package, licence) = (part()?.parse::<usize>()?, part()?, part()?);
            let mut words = package.split(' ');
            let (name, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let key = (name.to_owned(), version.trim_start_matches('v').to_owned());
            path.truncate(depth);
            if let Some(parent) = path.last() {
                tree.dependencies.insert((parent.clone(), key.clone()));
            }
            path.push(key.clone());
            tree.licences.insert(key, licence.trim_end_matches("(*)").trim().to_owned());
        }
        Ok(tree)
    }
}

/// The checksums in Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<Crate, String> {
    let package = |block: &str| {
        let field = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            Some(line?.trim_end_matches('"').to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    };
    lock.split("[[package]]").filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Crate {
        (name.to_owned(), "1.0.0".to_owned())
    }

    #[test]
    fn tree_has_licences_and_direct_dependencies() {
        let text = "0|a v1.0.0 (/work)|Apache-2.0\n1|b v1.0.0|MIT/Zlib\n2|c v1.0.0|MIT\n1|c v1.0.0|MIT (*)\n";
        let tree = Tree::parse(text).unwrap();
        let edges: Vec<_> =
            tree.dependencies.iter().map(|(from, to)| (from.0.as_str(), to.0.as_str())).collect();
        assert_eq!(edges, [("a", "b"), ("a", "c"), ("b", "c")]);
        assert_eq!((tree.licences[&key("c")].as_str(), tree.licences.len()), ("MIT", 3));
        assert!(entry(&key("b"), "MIT/Zlib", None).contains("\"licenseDeclared\": \"MIT OR Zlib\""));
        assert!(Tree::parse("a v1.0.0").is_err());
    }

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(json("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
        assert_eq!(id(&("a_b".to_owned(), "1.0+c".to_owned())), "SPDXRef-a-b-1.0-c");
    }

    #[test]
    fn checksums_are_read_from_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n\n[[package]]\nname = \"b\"\nversion = \"1.0.0\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([(key("a"), "00ff".to_owned())]));
    }
}
