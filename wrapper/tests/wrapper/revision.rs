//! The source revision that the build script determines, in real repositories.

use std::{fs, path::Path, process::Command};

#[path = "../../build/revision.rs"]
mod script;

fn git(folder: &Path, words: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]);
    git.args(words)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = git.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn revision_is_head_of_checkout() {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("checkout/wrapper");
    fs::create_dir_all(&folder).unwrap();
    git(&folder, &["init", "--quiet", ".."]);
    assert!(script::of(&folder).is_none(), "there is no commit");
    for worktree in [folder.clone(), top.path().join("other/wrapper")] {
        if worktree != folder {
            git(&folder, &["worktree", "add", "--quiet", "../../other"]);
            fs::create_dir_all(&worktree).unwrap();
        }
        let mut before = None;
        for _ in 0..2 {
            git(&worktree, &["commit", "--quiet", "--allow-empty", "--message=x"]);
            let found = script::of(&worktree).unwrap();
            assert!(git(&worktree, &["rev-parse", "HEAD"]).starts_with(&found.commit), "{found:?}");
            assert!(found.commit.len() >= 12, "{found:?}");
            // Cargo watches these files, which change with each commit.
            let watched: Vec<_> = found.changed_with.iter().map(|path| fs::read(path).unwrap()).collect();
            assert_eq!(watched.len(), 2, "{found:?}");
            assert_ne!(before.replace(watched.clone()), Some(watched));
        }
    }
}

#[test]
fn sources_without_checkout_have_no_revision() {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("vendor/grit/wrapper");
    fs::create_dir_all(&folder).unwrap();
    assert!(script::of(&folder).is_none());
    // An archive that was unpacked in the repository of another project.
    git(top.path(), &["init", "--quiet"]);
    git(top.path(), &["commit", "--quiet", "--allow-empty", "--message=x"]);
    assert!(script::of(&folder).is_none());
}
