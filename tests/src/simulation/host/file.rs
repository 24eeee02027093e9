//! The state file, as `supervise::record` reads and writes it: replaced by a rename, and not synced to disk.

use grit_wrapper::supervise::Supervision;

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
    Saved(Box<Supervision>),
}

impl File {
    pub(super) fn exists(&self) -> bool {
        !matches!(self, Self::Missing)
    }

    /// What `Saved::parse` makes of it. Moments lose their fractions of milliseconds.
    pub(super) fn read(&self) -> Option<Supervision> {
        match self {
            Self::Missing | Self::Broken => None,
            // `Saved::default`.
            Self::Empty => Some(Supervision::default()),
            Self::Saved(supervision) => {
                let text = serde_json::to_string(supervision).expect("a state has a text");
                Some(serde_json::from_str(&text).expect("the text of a state"))
            }
        }
    }
}
