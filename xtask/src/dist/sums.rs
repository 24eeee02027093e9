//! Checksums of a release: the file that Terraform's registries read, with its signature, and one for all files.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};

use super::{MANIFEST, PROVIDER, Release};
use crate::steps::output;

/// The file with the checksums of all files.
const ALL: &str = "SHA256SUMS";

pub(super) fn write(release: &Release, key: Option<&str>) -> anyhow::Result<()> {
    if let Some(key) = key {
        check_algorithm(key)?;
    }
    let prefix = format!("{PROVIDER}_{}_", release.version);
    let manifest = format!("{prefix}manifest.json");
    println!("{}", release.finish(&manifest, MANIFEST.as_bytes())?.display());

    let sums = format!("{prefix}SHA256SUMS");
    let registry = |name: &str| name.starts_with(&prefix) && (name.ends_with(".zip") || name == manifest);
    let own = |name: &str| name != ALL && !name.ends_with(".sig");
    for (file, is_listed) in [(sums.as_str(), &registry as &dyn Fn(&str) -> bool), (ALL, &own)] {
        let names: Vec<_> = names(&release.out)?.into_iter().filter(|name| is_listed(name)).collect();
        let text = output(Command::new("sha256sum").arg("--").args(&names).current_dir(&release.out))? + "\n";
        let path = release.finish(file, text.as_bytes())?;
        println!("{}", path.display());
        let signature = release.out.join(format!("{file}.sig"));
        // A signature of earlier checksums would be wrong.
        if signature.exists() {
            fs::remove_file(&signature).with_context(|| format!("remove {}", signature.display()))?;
        }
        if let Some(key) = key {
            let mut gpg = Command::new("gpg");
            gpg.args(["--batch", "--yes", "--local-user", key, "--detach-sign", "--output"]);
            output(gpg.arg(&signature).arg(&path))?;
            println!("{}", signature.display());
        }
    }
    Ok(())
}

/// The registry of Terraform refuses signatures of other keys than RSA and DSA, such as GnuPG's default, Ed25519.
fn check_algorithm(key: &str) -> anyhow::Result<()> {
    let listed =
        output(Command::new("gpg").args(["--batch", "--with-colons", "--list-secret-keys"]).arg(key))?;
    // Record type, algorithm (RFC 4880, section 9.1) and capabilities are the fields 1, 4 and 12.
    for line in listed.lines() {
        let fields: Vec<_> = line.split(':').collect();
        let [kind @ ("sec" | "ssb"), _, _, algorithm, .., _] = fields[..] else { continue };
        let signs = fields.get(11).is_some_and(|capabilities| capabilities.contains('s'));
        ensure!(
            !signs || matches!(algorithm, "1" | "3" | "17"),
            "--sign: {key:?} has a signing key ({kind}) of OpenPGP algorithm {algorithm}, but Terraform's registry accepts only RSA and DSA: \
             create a key with `gpg --quick-generate-key NAME rsa4096 sign`"
        );
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
