//! Processes: start, signal, wait, adopt, and find leftover processes.

mod cgroup;
mod child;
mod command_line;
pub mod exec_barrier;
mod executable_format;
mod exit;
mod identity;
mod inspect;
mod left_runner;
mod leftovers;
mod list;
mod marker;
pub(crate) mod orphans;
mod pidfd;
mod proc_status;
mod runner_command;
mod spawner;
mod stat;

#[cfg(test)]
pub(crate) use self::list::unresponsive;
pub use self::{
    child::{Child, Signal},
    command_line::{CommandError, CommandLine},
    exit::Exit,
    identity::{Identity, Origin, Program},
    left_runner::LeftRunner,
    leftovers::LeftoverProcess,
    marker::{Marker, STATE_FILE_VARIABLE, VARIABLE as MARKER_VARIABLE},
    spawner::Spawner,
};
pub(crate) use self::{
    identity::{boot_id, started_at},
    list::{Supervised, orphaned, running},
    proc_status::{ignores_quit, is_ending, is_suspended},
};
