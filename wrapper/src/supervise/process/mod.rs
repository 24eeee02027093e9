//! Processes: start, signal, wait, and find leftover processes.

mod command_line;
mod executable_format;
mod exit;
mod identity;
mod launcher;
mod leftovers;
mod list;
pub(crate) mod orphans;
mod peer;
pub(super) mod pidfd;
mod proc_status;
mod runner_command;
mod signal;
mod spawner;
mod stat;

pub use self::{
    command_line::{CommandError, CommandLine},
    exit::Exit,
    identity::{BootId, Identity},
    pidfd::Exited,
    signal::Signal,
    spawner::Spawner,
};
pub(crate) use self::{
    identity::{age, boot_id},
    launcher::launcher_fault,
    peer::{Peer, peer},
    proc_status::{is_suspended, user},
};
pub(super) use self::{leftovers::LeftoverProcesses, signal::ignore_esrch};
