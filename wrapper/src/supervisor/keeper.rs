//! Keeps the state file up to date, or knows that it is not.

use std::{io, time::Duration};

use tokio::time::Instant;
use tracing::{error, info};

use super::state::Supervision;
use crate::{process::Identity, store::Store};

/// The pause before a state file is written again that could not be written.
const SAVE_AGAIN: Duration = Duration::from_secs(1);

/// The state file, if there is one, and whether it tells the present.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    store: Option<Store>,
    again: Option<Instant>,
}

impl Keeper {
    pub(super) fn new(store: Store) -> Self {
        Self { store: Some(store), again: None }
    }

    /// Whether a later wrapper can find anything.
    pub(super) fn keeps(&self) -> bool {
        self.store.is_some()
    }

    /// When the file is to be written again; `None` while it tells the present.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again
    }

    /// Writes the state down. What cannot be written is tried again when [`Keeper::due`] says so, until it is: a drain must not wait for
    /// a disk.
    pub(super) fn save(&mut self, supervision: &Supervision, child: Option<&Identity>) {
        match self.try_save(supervision, child) {
            Ok(()) if self.again.take().is_some() => info!("the state file is written again"),
            Ok(()) => {}
            Err(error) => {
                if self.again.is_none() {
                    error!(%error, "cannot write the state file; until it can be, a later wrapper will not know what happened since");
                }
                self.again = Some(Instant::now() + SAVE_AGAIN);
            }
        }
    }

    /// Writes the state down now or not at all.
    ///
    /// # Errors
    ///
    /// Those of writing; the file is as it was before.
    pub(super) fn try_save(&mut self, supervision: &Supervision, child: Option<&Identity>) -> io::Result<()> {
        match &mut self.store {
            Some(store) => store.save(supervision, child),
            None => Ok(()),
        }
    }

    /// Ends in good order: there is nothing for the next wrapper to take up.
    pub(super) fn finish(self) {
        if let Some(store) = self.store {
            store.remove();
        }
    }
}
