//! Keeps the record up to date.

use std::{io, time::Duration};

use tokio::time::Instant;
use tracing::{error, info};

use super::format::Saved;

/// Delay before a failed write is repeated.
pub(in crate::supervise) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A state file: [`Record`](super::Record), or that of a simulation.
pub trait StateFile: Send + 'static {
    fn exists(&self) -> bool;

    /// Replaces the content. After an error, it is unchanged.
    fn replace(&self, text: &[u8]) -> io::Result<()>;
}

/// The record, if there is one, and whether it is up to date.
#[derive(Default)]
pub(in crate::supervise) struct Recorder {
    file: Option<Box<dyn StateFile>>,
    /// The content of the file, if known.
    written: Option<Saved>,
    /// When a write that has failed is repeated.
    again: Option<Instant>,
}

impl Recorder {
    pub(in crate::supervise) fn new(file: impl StateFile) -> Self {
        Self { file: Some(Box::new(file)), ..Self::default() }
    }

    /// Whether there is a record for the next wrapper.
    pub(in crate::supervise) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// When the state must be saved again; `None` if the record is up to date.
    pub(in crate::supervise) fn due(&self) -> Option<Instant> {
        self.again
    }

    /// Saves the state, if the file does not have it, or was removed. A failed write is logged, and is to be repeated at [`Recorder::due`].
    pub(in crate::supervise) fn save(&mut self, saved: Saved) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.written.as_ref() == Some(&saved) && file.exists() {
            return Ok(());
        }
        let result = serde_json::to_vec(&saved).map_err(io::Error::from).and_then(|text| file.replace(&text));
        match &result {
            Ok(()) => {
                self.written = Some(saved);
                if self.again.take().is_some() {
                    info!("state file is writable again");
                }
            }
            Err(error) => {
                self.written = None;
                if self.again.is_none() {
                    error!(%error, "cannot write the state file, so state changes are not saved; retrying");
                }
                self.again = Some(Instant::now() + RETRY_DELAY);
            }
        }
        result
    }

    /// Empties the file: the wrapper exits normally, and the next one has nothing to continue.
    pub(in crate::supervise) fn finish(self) {
        // No runner is running, and the next wrapper has nothing to continue.
        if let Some(Err(error)) = self.file.map(|file| file.replace(b"")) {
            error!(%error, "cannot empty the state file");
        }
    }
}
