//! The test programs: builds them and lists their tests.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use crate::steps::cargo;

/// A program of libtest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binary {
    /// The name of its target: `e2e`, `grit_wrapper`.
    pub(crate) name: String,
    /// Whether it has the unit tests of a library or a program, not integration tests.
    pub(crate) unit: bool,
    pub(crate) path: PathBuf,
    /// The directory of its package, in which cargo starts it.
    pub(crate) folder: PathBuf,
}

/// Builds all targets of the workspace, and returns those with tests.
pub(crate) fn build() -> anyhow::Result<Vec<Binary>> {
    let mut command = cargo(&["build", "--workspace", "--all-targets"]);
    command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo")?;
    let stdout = child.stdout.take().context("cargo has no stdout")?;
    let mut binaries = Vec::new();
    for line in BufReader::new(stdout).lines() {
        binaries.extend(artifact(&line.context("cannot read the output of cargo")?));
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if !status.success() {
        bail!("`cargo build --workspace --all-targets` failed with {status}");
    }
    if binaries.is_empty() {
        bail!("cargo's messages contain no test binary; their format may have changed");
    }
    Ok(binaries)
}

/// Parses a line of cargo's JSON about a test program. The few fields have no escapes, so no JSON library is used, which
/// every `cargo xtask` of a fresh clone would have to compile.
fn artifact(line: &str) -> Option<Binary> {
    let profile = &line[line.find("\"profile\":{")?..];
    let is_test = profile[..profile.find('}')?].contains("\"test\":true");
    if !is_test {
        return None;
    }
    let target = &line[line.find("\"target\":{")?..];
    let unit = !target[..target.find(']')?].contains("\"test\"");
    Some(Binary {
        name: text(target, "name")?.to_owned(),
        unit,
        path: text(line, "executable")?.into(),
        folder: Path::new(text(line, "manifest_path")?).parent()?.to_owned(),
    })
}

fn text<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let key = format!("\"{key}\":\"");
    let value = &json[json.find(&key)? + key.len()..];
    Some(&value[..value.find('"')?])
}

impl Binary {
    /// The names of its tests that these libtest arguments select. Ignored tests are omitted unless the arguments select them.
    pub(crate) fn tests(&self, arguments: &[String]) -> anyhow::Result<Vec<String>> {
        // `--list` includes ignored tests, so they are listed separately and removed.
        let all = self.list(arguments)?;
        if all.is_empty() || arguments.iter().any(|argument| argument.ends_with("ignored")) {
            return Ok(all);
        }
        let ignored = self.list(&[arguments, &["--ignored".to_owned()]].concat())?;
        Ok(all.into_iter().filter(|name| !ignored.contains(name)).collect())
    }

    /// The names of its ignored tests that contain this text.
    pub(crate) fn ignored(&self, name: &str) -> anyhow::Result<Vec<String>> {
        self.list(&[name.to_owned(), "--ignored".to_owned()])
    }

    fn list(&self, arguments: &[String]) -> anyhow::Result<Vec<String>> {
        let mut command = self.command();
        let output = command
            .args(["--list", "--format", "terse"])
            .args(arguments)
            .output()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("cannot list the tests of {}: {}", self.path.display(), said.trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// The program with default signal actions: under `nohup` SIGHUP is ignored, and in the background of a script SIGINT and
    /// SIGQUIT are ignored, which all processes of a test would inherit.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(&self.path);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_artifacts_are_found_in_cargo_output() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///r/tests#grit-tests@0.1.0","manifest_path":"/r/tests/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"e2e","src_path":"/r/tests/tests/e2e/main.rs","edition":"2024","doc":false,"doctest":false,"test":true},"profile":{"opt_level":"0","debuginfo":"line-tables-only","debug_assertions":true,"overflow_checks":true,"test":true},"features":[],"filenames":["/t/e2e-1"],"executable":"/t/e2e-1","fresh":true}"#;
        let found = artifact(line).unwrap();
        assert_eq!((found.name.as_str(), found.unit), ("e2e", false));
        assert_eq!((found.path, found.folder), ("/t/e2e-1".into(), "/r/tests".into()));
        let library = line.replace("[\"test\"]", "[\"lib\"]");
        assert!(artifact(&library).unwrap().unit);
        let program = line.replace(",\"test\":true},\"features\"", ",\"test\":false},\"features\"");
        assert_eq!(artifact(&program), None);
    }
}
