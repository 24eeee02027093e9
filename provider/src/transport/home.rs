//! Files of the user: `~` in paths, and errors of the file system in few words.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Replaces a leading `~` by the home folder. Without a home folder the path stays as it is.
pub(crate) fn expand(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// An I/O error without its number: `No such file or directory`.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(plain, _)| plain.to_owned())
}
