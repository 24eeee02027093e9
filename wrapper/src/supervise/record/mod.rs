//! The record for the next wrapper, in the state file: the identity of the runner, and what was requested of it.
//!
//! It is one small file, replaced by a rename before each step that it describes, in a directory that only root or the wrapper's user can write
//! to ([`folder`]). After the wrapper was killed, the next wrapper adopts the runner that the file names, and continues a drain ([`adoption`]). A
//! wrapper that exits normally empties the file: an empty file means that no runner is running. It contains the headers of callbacks, so only the
//! wrapper's user can read it. It is not synced to disk: a reboot ends the runner anyway, and leaves at most an empty file.
//!
//! A file that cannot be written prevents only the start of a runner that the next wrapper would not find by its cgroup. The failure is a health
//! reason and a log line, and the write is repeated.

mod adoption;
mod file;
pub(crate) mod folder;
mod format;
mod lock;
mod recorder;

pub(super) use self::recorder::Recorder;
pub use self::{
    adoption::Found,
    file::{Record, RecordError},
    format::Saved,
};
