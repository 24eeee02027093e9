//! Who owns the runner's process: this wrapper, as its parent ([`Child`]), or PID 1, through a unit of systemd ([`Unit`]).

mod child;
mod unit;

use std::io;

use super::{
    core::ChildInfo,
    process::{Exit, Signal},
};

pub(super) use self::unit::{LONGEST_EXIT, LONGEST_START};
pub use self::{
    child::{Child, Processes},
    unit::{Host, Linux, Unit, UnitError, UnitFaults, UnitName, record_exit},
};

/// What the task needs of the owner of the runner's process.
pub trait Owner: Send + 'static {
    /// Returns when there may be news. Cancel safe.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// What has changed since the last call, if anything. After an exit it takes seconds until all is known and cleaned up.
    ///
    /// # Errors
    ///
    /// If the owner does not respond. Then it is unknown whether a process runs.
    fn news(&mut self) -> impl Future<Output = io::Result<Option<Change>>> + Send;

    /// Prevents, or allows, that others than this wrapper start the process.
    fn hold(&mut self, held: bool) -> io::Result<()>;

    /// The process is being stopped forcefully: no process of it is left after its exit, also if it exits before SIGTERM.
    fn force(&mut self);

    /// Starts the process. After an error there is none.
    fn start(&mut self) -> impl Future<Output = io::Result<ChildInfo>> + Send;

    /// Sends this signal to the process. A process that has exited is no error. SIGQUIT also fails if the process is not the runner.
    fn signal(&mut self, signal: Signal) -> impl Future<Output = io::Result<()>> + Send;

    /// systemd's id of the start of the process, for the next wrapper.
    fn invocation(&self) -> Option<&str>;
}

/// What has happened to the process without a request of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The owner has started this process.
    Appeared(ChildInfo),
    Exited(Exit),
    /// The owner does not restart the process that has exited, or has none to start.
    NotRestarted,
}
