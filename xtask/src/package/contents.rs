//! The contents of the package.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;

use super::{elf::Elf, write};
use crate::steps::{output, root};

/// Files that are installed unchanged: source and target path.
const UNCHANGED_FILES: [(&str, &str); 10] = [
    ("wrapper/packaging/systemd/grit-wrapper.service", "usr/lib/systemd/system/grit-wrapper.service"),
    (
        "wrapper/packaging/systemd/gitlab-runner.service.d/grit-wrapper.conf",
        "usr/share/grit-wrapper/gitlab-runner.service.d/grit-wrapper.conf",
    ),
    (
        "wrapper/packaging/systemd/grit-wrapper.service.d/jobs-elsewhere.conf",
        "usr/share/grit-wrapper/grit-wrapper.service.d/jobs-elsewhere.conf",
    ),
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
    ("wrapper/packaging/deb/default", "etc/default/grit-wrapper"),
    ("wrapper/packaging/deb/needrestart.conf", "etc/needrestart/conf.d/grit-wrapper.conf"),
    ("wrapper/packaging/deb/sysusers.conf", "usr/lib/sysusers.d/grit-wrapper.conf"),
    ("wrapper/packaging/deb/copyright", "usr/share/doc/grit-wrapper/copyright"),
];

/// The pages of `docs/wrapper/`, which the package contains.
const PAGES: [&str; 6] =
    ["README.md", "draining.md", "metrics.md", "reference.md", "running.md", "security.md"];

pub(super) struct Contents<'a> {
    pub(super) program: &'a Path,
    pub(super) elf: &'a Elf,
    pub(super) version: &'a str,
    pub(super) epoch: &'a str,
}

impl Contents<'_> {
    /// Creates the tree for `dpkg-deb --build`.
    pub(super) fn lay_out(&self, tree: &Path) -> anyhow::Result<()> {
        let program = tree.join("usr/bin/grit-wrapper");
        write(&program, [], 0o755)?;
        output(Command::new("strip").args(["--strip-unneeded", "-o"]).args([&program, self.program]))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .context("set the mode of the binary")?;
        for (from, to) in UNCHANGED_FILES {
            write(&tree.join(to), read(from)?, 0o644)?;
        }
        let documents = tree.join("usr/share/doc/grit-wrapper");
        for page in PAGES {
            compressed(&documents.join(page), &read(&format!("docs/wrapper/{page}"))?)?;
        }
        compressed(&documents.join("changelog"), &self.changelog()?)?;
        compressed(&tree.join("usr/share/man/man8/grit-wrapper.8"), &self.manual()?)?;

        let installed = files(tree)?;
        let control = tree.join("DEBIAN");
        write(&control.join("control"), self.control(tree, &installed)?, 0o644)?;
        write(&control.join("conffiles"), read("wrapper/packaging/deb/conffiles")?, 0o644)?;
        for script in ["postinst", "prerm", "postrm"] {
            write(&control.join(script), read(&format!("wrapper/packaging/deb/{script}"))?, 0o755)?;
        }
        let sums = output(Command::new("md5sum").arg("--").args(&installed).current_dir(tree))?;
        write(&control.join("md5sums"), sums + "\n", 0o644)?;
        folders_for_all(tree)
    }

    fn control(&self, tree: &Path, installed: &[PathBuf]) -> anyhow::Result<String> {
        // As in dpkg-gencontrol: each file is rounded up to KiB.
        let size = |path: &PathBuf| fs::metadata(tree.join(path)).map(|found| found.len().div_ceil(1024));
        let sizes: Result<Vec<u64>, _> = installed.iter().map(size).collect();
        let size: u64 = sizes.context("list the files")?.iter().sum();
        let mut depends = self.elf.depends();
        // systemd-sysusers creates the group.
        depends.push("systemd | systemd-standalone-sysusers | systemd-sysusers".to_owned());
        Ok(read("wrapper/packaging/deb/control.in")?
            .replace("@VERSION@", self.version)
            .replace("@ARCHITECTURE@", self.elf.architecture)
            .replace("@INSTALLED_SIZE@", &size.to_string())
            .replace("@DEPENDS@", &depends.join(", ")))
    }

    /// The lines of CHANGELOG.md about the wrapper, in Debian's format.
    fn changelog(&self) -> anyhow::Result<String> {
        let changes = read("CHANGELOG.md")?;
        let lines: Vec<String> = entries(&changes).iter().map(|entry| wrapped(entry)).collect();
        let date = output(Command::new("date").env("LC_ALL", "C").args([
            "--utc",
            "--rfc-email",
            "--date",
            &format!("@{}", self.epoch),
        ]))?;
        let (version, lines) = (self.version, lines.concat());
        Ok(format!(
            "grit-wrapper ({version}) stable; urgency=medium\n\n{lines}\n -- runner-tools <runner-tools@users.noreply.github.com>  {date}\n"
        ))
    }

    /// A manual page from the output of `--help`.
    fn manual(&self) -> anyhow::Result<String> {
        let help = |words: &[&str]| {
            let mut command = Command::new(self.program);
            // Its help shows variables of the environment.
            command.args(words).arg("--help").env_clear().env("COLUMNS", "80");
            output(&mut command)
        };
        let overview = help(&[])?;
        let mut page = format!(
            ".TH GRIT\\-WRAPPER 8 \"\" \"grit\\-wrapper {}\"\n.SH NAME\n\
             grit\\-wrapper \\- supervises gitlab\\-runner and stops it gracefully\n\
             .SH DESCRIPTION\n.nf\n{}.fi\n",
            self.version,
            verbatim(&overview)
        );
        for command in commands(&overview) {
            let text = verbatim(&help(&[command])?);
            page += &format!(".SH {}\n.nf\n{text}.fi\n", command.to_uppercase());
        }
        page += ".SH SEE ALSO\n/usr/share/doc/grit\\-wrapper/README.md.gz\n";
        Ok(page)
    }
}

/// The items of a Markdown changelog about the wrapper, with their continuation lines.
fn entries(changes: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for line in changes.lines() {
        match (line.strip_prefix("- "), line.strip_prefix("  "), items.last_mut()) {
            (Some(item), _, _) => items.push(item.to_owned()),
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

/// Text escaped for troff.
fn verbatim(text: &str) -> String {
    text.lines().map(|line| format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-"))).collect()
}

/// The commands of a help overview: the first word of each line below `Commands:`.
fn commands(overview: &str) -> impl Iterator<Item = &str> {
    let lines = overview.lines().skip_while(|line| *line != "Commands:").skip(1);
    // Lines with more indentation continue the one before.
    let first = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    first.filter_map(|line| line.split_whitespace().next()).filter(|command| *command != "help")
}

/// The text of a file of this repository.
fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("read {path}"))
}

/// Writes `PATH.gz` without name and time.
fn compressed(path: &Path, text: &str) -> anyhow::Result<()> {
    write(path, text, 0o644)?;
    output(Command::new("gzip").args(["-9", "--no-name", "--force"]).arg(path))?;
    Ok(())
}

/// All files below a directory, relative to it and sorted.
fn files(tree: &Path) -> anyhow::Result<Vec<PathBuf>> {
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
fn folders_for_all(tree: &Path) -> anyhow::Result<()> {
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
            format!("# Changelog\n\n- provider: else\n- wrapper: {long}\n  and more.\n\n- wrapper: last.\n");
        let entries = entries(&changes);
        assert_eq!(entries.len(), 2);
        assert!(entries[0].ends_with("and more."));
        let text = wrapped(&entries[0]);
        assert!(text.lines().all(|line| line.len() <= 78) && text.lines().count() == 3, "{text}");
        assert!(text.starts_with("  * word") && text.contains("\n    word"), "{text}");
        assert_eq!(wrapped(&entries[1]), "  * last.\n");
    }
}
