//! Checksums of a release: the file that Terraform's registries read, and one for all files. The release workflow makes them again for the files of
//! all platforms, and signs them.

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;

use super::{MANIFEST, PROVIDER, Release};
use crate::steps::output;

/// The file with the checksums of all files.
const ALL: &str = "SHA256SUMS";

pub(super) fn write(release: &Release) -> anyhow::Result<()> {
    let prefix = format!("{PROVIDER}_{}_", release.version);
    let manifest = format!("{prefix}manifest.json");
    println!("{}", release.finish(&manifest, MANIFEST.as_bytes())?.display());

    let sums = format!("{prefix}SHA256SUMS");
    let registry = |name: &str| name.starts_with(&prefix) && (name.ends_with(".zip") || name == manifest);
    let own = |name: &str| name != ALL;
    for (file, is_listed) in [(sums.as_str(), &registry as &dyn Fn(&str) -> bool), (ALL, &own)] {
        let names: Vec<_> = names(&release.out)?.into_iter().filter(|name| is_listed(name)).collect();
        let text = output(Command::new("sha256sum").arg("--").args(&names).current_dir(&release.out))? + "\n";
        println!("{}", release.finish(file, text.as_bytes())?.display());
    }
    Ok(())
}

/// The names of the files in a directory, sorted.
pub(super) fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
