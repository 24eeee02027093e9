//! The state file, as `supervise::record` reads and writes it: replaced by a rename, and not synced to disk.

use grit_wrapper::{supervise::Supervision, testing};

/// Why the file lacks what the wrapper has saved.
pub(super) const REMOVED: &str = "the state file was removed";

/// The content of the state file.
#[derive(Clone, Debug, Default)]
pub(super) enum File {
    /// It does not exist.
    #[default]
    Missing,
    /// A wrapper exited normally, or the power failed.
    Empty,
    /// Invalid content: no wrapper starts.
    Broken,
    Saved(Vec<u8>),
}

impl File {
    pub(super) fn exists(&self) -> bool {
        !matches!(self, Self::Missing)
    }

    /// What the next wrapper reads; `None`: there is no file.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Missing | Self::Broken => None,
            Self::Empty => Some(&[]),
            Self::Saved(text) => Some(text),
        }
    }

    /// The state that it has.
    pub(super) fn read(&self) -> Option<Supervision> {
        testing::saved(self.text()?)
    }
}
