//! Keeps the record up to date.

use std::{io, time::Duration};

use tokio::time::Instant;
use tracing::{error, info};

use super::{file::Record, format::Saved};

/// Delay before a failed write is repeated.
pub(in crate::supervise) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The record, if there is one, and whether it is up to date.
#[derive(Debug, Default)]
pub(in crate::supervise) struct Recorder {
    record: Option<Record>,
    /// The content of the file, if known.
    written: Option<Saved>,
    /// When a write that has failed is repeated.
    again: Option<Instant>,
}

impl Recorder {
    pub(in crate::supervise) fn new(record: Record) -> Self {
        Self { record: Some(record), ..Self::default() }
    }

    /// Whether there is a record for the next wrapper.
    pub(in crate::supervise) fn has_file(&self) -> bool {
        self.record.is_some()
    }

    /// When the state must be saved again; `None` if the record is up to date.
    pub(in crate::supervise) fn due(&self) -> Option<Instant> {
        self.again
    }

    /// Saves the state, if the file does not have it, or was removed. A failed write is logged, and is to be repeated at [`Recorder::due`].
    pub(in crate::supervise) fn save(&mut self, saved: Saved) -> io::Result<()> {
        let Some(record) = &self.record else { return Ok(()) };
        if self.written.as_ref() == Some(&saved) && record.exists() {
            return Ok(());
        }
        let result = record.write(&saved);
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
        if let Some(Err(error)) = self.record.map(|record| record.empty()) {
            error!(%error, "cannot empty the state file");
        }
    }
}
