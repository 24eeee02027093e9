//! The commit that a checkout is at, as `git` gives it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The commit, and the files that change with it.
#[derive(Debug)]
pub(crate) struct Revision {
    pub(crate) commit: String,
    pub(crate) changed_with: Vec<PathBuf>,
}

/// The revision of the crate in `folder`. `None` if the directory is not `wrapper` at the top of a checkout (sources from an archive can be
/// in a repository of another project), or if `git` is missing or fails.
pub(crate) fn of(folder: &Path) -> Option<Revision> {
    if git(folder, &["rev-parse", "--show-prefix"])? != "wrapper/" {
        return None;
    }
    let commit = git(folder, &["rev-parse", "--short=12", "HEAD"])?;
    // HEAD contains the name of a branch and does not change with each commit; its log does. A path that does not exist would run the build
    // script in every build.
    let path = |name| Some(folder.join(git(folder, &["rev-parse", "--git-path", name])?));
    let changed_with =
        ["HEAD", "logs/HEAD"].into_iter().filter_map(path).filter(|path| path.exists()).collect();
    Some(Revision { commit, changed_with })
}

fn git(folder: &Path, words: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // The directory determines the repository, also if a hook of another repository runs this.
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    let output = git.args(words).current_dir(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
