//! The record for the next wrapper, in the state file: the process of the runner, and what was requested of it.
//!
//! It is one small file, replaced by a rename before each step that it describes, in a directory that only root or the wrapper's user can write
//! to ([`folder`]). The next wrapper continues a drain ([`Supervision::continued`](super::Supervision::continued)), and does not start a runner beside the
//! one that the file names. A wrapper that exits normally empties the file: an empty file means that nothing is to be continued. It contains the headers
//! of callbacks, so only the wrapper's user can read it. It is not synced to disk: a reboot ends the runner anyway, and leaves at most an empty file.
//!
//! A file that cannot be written prevents nothing. The failure is a health reason and a log line, and the write is repeated.

mod file;
pub(crate) mod folder;
mod format;
mod lock;
mod recorder;

pub(super) use self::recorder::{RETRY_DELAY, Recorder};
pub use self::{
    file::{Record, RecordError},
    format::Saved,
    recorder::StateFile,
};
