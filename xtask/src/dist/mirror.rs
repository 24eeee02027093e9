//! A mirror of the provider: a directory that Terraform and OpenTofu install from, as a filesystem mirror, or as a network mirror that any
//! static file server offers. It can contain several versions and platforms.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::Context as _;

use super::{PROVIDER, Release, sums::names};
use crate::steps::output;

/// The address of the provider in Terraform and in OpenTofu.
const ADDRESSES: [&str; 2] =
    ["registry.terraform.io/runner-tools/grit", "registry.opentofu.org/runner-tools/grit"];

/// Adds the archives of a release to the mirror.
pub(super) fn write(release: &Release, mirror: &Path) -> anyhow::Result<()> {
    for address in ADDRESSES {
        let folder = mirror.join(address);
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        for name in names(&release.out)? {
            if version_and_platform(&name).is_some_and(|(version, _)| version == release.version) {
                fs::copy(release.out.join(&name), folder.join(&name))
                    .with_context(|| format!("copy {name} to {}", folder.display()))?;
            }
        }
        index(&folder)?;
        println!("{}", folder.display());
    }
    Ok(())
}

/// Writes the files of the network mirror protocol.
fn index(folder: &Path) -> anyhow::Result<()> {
    let mut versions: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for name in names(folder)? {
        if let Some((version, platform)) = version_and_platform(&name) {
            versions.entry(version.to_owned()).or_default().insert((platform.to_owned(), name.clone()));
        }
    }
    let list: Vec<_> = versions.keys().map(|version| format!("\"{version}\": {{}}")).collect();
    let write = |name: String, text: String| {
        fs::write(folder.join(&name), text).with_context(|| format!("write {name}"))
    };
    write("index.json".to_owned(), format!("{{\"versions\": {{{}}}}}\n", list.join(", ")))?;
    for (version, archives) in versions {
        let mut lines = Vec::new();
        for (platform, name) in archives {
            let sum = output(Command::new("sha256sum").arg("--").arg(&name).current_dir(folder))?;
            let sum = sum.split(' ').next().unwrap_or_default();
            lines.push(format!("    \"{platform}\": {{\"url\": \"{name}\", \"hashes\": [\"zh:{sum}\"]}}"));
        }
        write(
            format!("{version}.json"),
            format!("{{\n  \"archives\": {{\n{}\n  }}\n}}\n", lines.join(",\n")),
        )?;
    }
    Ok(())
}

/// The version and the platform in the name of an archive.
fn version_and_platform(name: &str) -> Option<(&str, &str)> {
    let name = name.strip_prefix(PROVIDER)?.strip_prefix('_')?.strip_suffix(".zip")?;
    name.split_once('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_name_has_version_and_platform() {
        let parts = version_and_platform("terraform-provider-grit_0.1.0-rc.1_linux_amd64.zip");
        assert_eq!(parts, Some(("0.1.0-rc.1", "linux_amd64")));
        assert_eq!(version_and_platform("terraform-provider-grit_0.1.0_manifest.json"), None);
    }
}
