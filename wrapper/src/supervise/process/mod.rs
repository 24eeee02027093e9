//! Processes: start, signal, wait, adopt, and find leftover processes.

pub(crate) mod cgroup;
mod child;
mod command_line;
pub mod exec_barrier;
mod executable_format;
mod exit;
mod identity;
mod launcher;
mod leftovers;
mod list;
pub(crate) mod orphans;
mod peer;
mod pidfd;
mod proc_status;
mod runner_command;
mod spawner;
mod stat;

pub(crate) use self::{
    child::REAP_LIMIT,
    exec_barrier::EXEC_LIMIT,
    identity::{age, boot_id},
    launcher::launcher_fault,
    leftovers::KILL_LIMIT,
    peer::{Peer, peer},
    proc_status::{is_suspended, user},
};
pub use self::{
    child::{Child, Signal},
    command_line::{CommandError, CommandLine},
    exit::Exit,
    identity::{BootId, Identity, Origin, Program},
    spawner::Spawner,
};
