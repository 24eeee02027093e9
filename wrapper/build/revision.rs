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

/// The revision of the crate in `folder`; none where the folder is not `wrapper` at the top of a checkout (as sources from an archive, which may
/// lie in a repository of another project), or where `git` is missing or refuses.
pub(crate) fn of(folder: &Path) -> Option<Revision> {
    if git(folder, &["rev-parse", "--show-prefix"])? != "wrapper/" {
        return None;
    }
    let commit = git(folder, &["rev-parse", "--short=12", "HEAD"])?;
    // HEAD alone names a branch, and does not change with its commits; its log does. A path that does not exist would start the build script
    // at every build.
    let path = |name| Some(folder.join(git(folder, &["rev-parse", "--git-path", name])?));
    let changed_with =
        ["HEAD", "logs/HEAD"].into_iter().filter_map(path).filter(|path| path.exists()).collect();
    Some(Revision { commit, changed_with })
}

fn git(folder: &Path, words: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // The folder decides which repository it is, also where a hook of another one runs this.
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    let output = git.args(words).current_dir(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
