//! I/O errors that several waiters share.

use std::io;

use crate::user_files;

/// An I/O error that several waiters can share.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct SharedIoError {
    pub kind: io::ErrorKind,
    text: String,
}

impl From<io::Error> for SharedIoError {
    fn from(error: io::Error) -> Self {
        Self { kind: error.kind(), text: user_files::plain(&error) }
    }
}
