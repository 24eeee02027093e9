//! The files of the wrapper's packages: the tree that .deb and .rpm install, and the .tar.gz for other systems.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{
    Release, WRAPPER,
    archive::{self, File},
    date, program, read, write,
};
use crate::steps::{cargo, programs, root, run as execute};

/// Files that are installed unchanged: source and target path.
const UNCHANGED_FILES: [(&str, &str); 7] = [
    (
        "wrapper/packaging/prometheus/grit-wrapper.rules.yml",
        "usr/share/grit-wrapper/prometheus/grit-wrapper.rules.yml",
    ),
    (
        "wrapper/packaging/sshd/deploy-dial-stdio.conf",
        "usr/share/grit-wrapper/sshd_config.d/deploy-dial-stdio.conf",
    ),
    (
        "wrapper/packaging/sshd/deploy-forwarding.conf",
        "usr/share/grit-wrapper/sshd_config.d/deploy-forwarding.conf",
    ),
    ("proto/wrapper/v1/wrapper.proto", "usr/share/grit-wrapper/wrapper.proto"),
    ("wrapper/packaging/default", "etc/default/grit-wrapper"),
    ("wrapper/packaging/needrestart.conf", "etc/needrestart/conf.d/grit-wrapper.conf"),
    ("wrapper/packaging/sysusers.conf", "usr/lib/sysusers.d/grit-wrapper.conf"),
];

/// The units and the drop-in, below `wrapper/packaging/systemd`. They have the same paths below the directory of systemd.
const UNITS: [&str; 4] = [
    "gitlab-runner.service",
    "gitlab-runner.service.d/10-grit-wrapper.conf",
    "grit-wrapper.service",
    "grit-wrapper@.service",
];

/// Where a kind of package has its files.
pub(super) struct Places {
    pub(super) zsh: &'static str,
    pub(super) licence: (&'static str, &'static str),
}

/// Creates the tree of a package.
pub(super) fn lay_out(release: &Release, tree: &Path, places: &Places) -> anyhow::Result<()> {
    write(&tree.join("usr/bin/grit-wrapper"), release.stripped(WRAPPER)?, 0o755)?;
    for (from, to) in UNCHANGED_FILES.into_iter().chain([places.licence]) {
        write(&tree.join(to), read(from)?, 0o644)?;
    }
    for path in UNITS {
        write(&tree.join("usr/lib/systemd/system").join(path), unit(path)?, 0o644)?;
    }
    for (file, text) in generated(release, "completions")? {
        let to = match file.as_str() {
            "grit-wrapper.bash" => "usr/share/bash-completion/completions/grit-wrapper",
            "grit-wrapper.fish" => "usr/share/fish/vendor_completions.d/grit-wrapper.fish",
            _ => places.zsh,
        };
        write(&tree.join(to), text, 0o644)?;
    }
    let compressed = |folder: &str, name: &str, text: &str| {
        let path = tree.join(folder).join(format!("{name}.gz"));
        write(&path, archive::gzip(text.as_bytes(), release.level)?, 0o644)
    };
    let documents = "usr/share/doc/grit-wrapper";
    for page in names("docs/wrapper")? {
        compressed(documents, &page, &read(&format!("docs/wrapper/{page}"))?)?;
    }
    compressed(documents, "changelog", &changelog(release)?)?;
    for (page, text) in generated(release, "man")? {
        compressed("usr/share/man/man8", &page, &text)?;
    }
    folders_for_all(tree)
}

/// The archive for systems without these package managers.
pub(super) fn tar(release: &Release) -> anyhow::Result<PathBuf> {
    let folder = format!("{WRAPPER}_{}_{}", release.version, program::platform()?);
    let mut files = vec![("grit-wrapper".to_owned(), release.stripped(WRAPPER)?, 0o755)];
    let mut add = |to: String, text: String| files.push((to, text.into_bytes(), 0o644));
    add("LICENSE".to_owned(), read("LICENSE")?);
    for folder in ["completions", "man"] {
        for (file, text) in generated(release, folder)? {
            add(format!("{folder}/{file}"), text);
        }
    }
    for path in UNITS {
        add(format!("systemd/{path}"), unit(path)?);
    }
    files.sort();
    let file = |(name, bytes, mode)| File { name: format!("{folder}/{name}"), mode, bytes };
    let files: Vec<_> = files.into_iter().map(file).collect();
    let bytes = archive::gzip(&archive::tar(&files, release.epoch)?, release.level)?;
    release.finish(&format!("{folder}.tar.gz"), &bytes)
}

fn unit(path: &str) -> anyhow::Result<String> {
    read(&format!("wrapper/packaging/systemd/{path}"))
}

/// Writes the manual pages and completions to the work directory. The released program does not contain the code that generates them.
pub(super) fn write_documents(release: &Release, build: bool) -> anyhow::Result<()> {
    let program = programs("debug").join("examples/documents");
    if build || !program.exists() {
        // With the features of the programs beside it, which cargo then does not compile again.
        let packages: &[&str] = if build { &["--package", WRAPPER] } else { &["--workspace"] };
        execute(cargo(&["build", "--locked"]).args(packages).args(["--example", "documents"]))?;
    }
    execute(Command::new(program).arg(release.work.join("documents")).arg(&release.version))
        .context("write manual pages and completions")
}

/// The files in `man` or `completions`: names and texts.
fn generated(release: &Release, folder: &str) -> anyhow::Result<Vec<(String, String)>> {
    let folder = release.work.join("documents").join(folder);
    let text = |path: PathBuf| {
        let text =
            fs::read_to_string(folder.join(&path)).with_context(|| format!("read {}", path.display()))?;
        Ok((path.to_string_lossy().into_owned(), text))
    };
    files(&folder)?.into_iter().map(text).collect()
}

/// The lines of CHANGELOG.md about the wrapper, in Debian's format.
fn changelog(release: &Release) -> anyhow::Result<String> {
    let changes = read("CHANGELOG.md")?;
    let lines: Vec<String> = entries(&changes).iter().map(|entry| wrapped(entry)).collect();
    let (version, lines) = (package_version(&release.version), lines.concat());
    let date = date::email(release.epoch)?;
    Ok(format!(
        "grit-wrapper ({version}) stable; urgency=medium\n\n{lines}\n -- runner-tools <runner-tools@users.noreply.github.com>  {date}\n"
    ))
}

/// The version of a package: a pre-release must sort before its release, `~` does, `-` does not.
pub(super) fn package_version(version: &str) -> String {
    version.replace('-', "~")
}

/// The items of a Markdown changelog about the wrapper, with their continuation lines.
fn entries(changes: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for line in changes.lines() {
        match (line.strip_prefix(['*', '-']), line.strip_prefix("  "), items.last_mut()) {
            (Some(item), _, _) => items.push(item.trim().to_owned()),
            (None, Some(more), Some(item)) => *item += &format!(" {}", more.trim()),
            _ => {}
        }
    }
    items.iter().filter_map(|item| item.strip_prefix("wrapper: ")).map(str::to_owned).collect()
}

/// An item of a Debian changelog, wrapped at 78 characters.
fn wrapped(entry: &str) -> String {
    let mut text = String::new();
    let mut line = "  *".to_owned();
    for word in entry.split_whitespace() {
        if line.len() + 1 + word.len() > 78 {
            text += &line;
            text.push('\n');
            line = "   ".to_owned();
        }
        line.push(' ');
        line += word;
    }
    text + &line + "\n"
}

/// The names of the files in a directory of this repository, sorted.
fn names(folder: &str) -> anyhow::Result<Vec<String>> {
    let files = files(&root().join(folder))?;
    Ok(files.into_iter().map(|path| path.to_string_lossy().into_owned()).collect())
}

/// All files below a directory, relative to it and sorted.
pub(super) fn files(tree: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    walk(tree, &mut |path, is_folder| {
        if !is_folder {
            found.push(path.strip_prefix(tree)?.to_owned());
        }
        Ok(())
    })?;
    found.sort();
    Ok(found)
}

/// Makes directories readable for every user, with any umask.
pub(super) fn folders_for_all(tree: &Path) -> anyhow::Result<()> {
    let open = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("set the mode of {}", path.display()))
    };
    open(tree)?;
    walk(tree, &mut |path, is_folder| if is_folder { open(path) } else { Ok(()) })
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path, bool) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("read {}", folder.display()))?;
        let is_folder = entry.file_type().context("read the type of a file")?.is_dir();
        visit(&entry.path(), is_folder)?;
        if is_folder {
            walk(&entry.path(), visit)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_changelog_wraps_whole_items() {
        let long = "word ".repeat(30);
        let changes =
            format!("# Changelog\n\n* provider: else\n* wrapper: {long}\n  and more.\n\n* wrapper: last.\n");
        let entries = entries(&changes);
        assert_eq!(entries.len(), 2);
        assert!(entries[0].ends_with("and more."));
        let text = wrapped(&entries[0]);
        assert!(text.lines().all(|line| line.len() <= 78) && text.lines().count() == 3, "{text}");
        assert!(text.starts_with("  * word") && text.contains("\n    word"), "{text}");
        assert_eq!(wrapped(&entries[1]), "  * last.\n");
    }
}
