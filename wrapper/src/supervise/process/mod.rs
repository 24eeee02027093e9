//! Processes of Linux: start, signal, wait, adopt, and find leftover processes.

mod cgroup;
mod child;
mod command_line;
pub mod exec_barrier;
mod executable_format;
mod exit;
mod identity;
mod leftovers;
mod linux;
mod linux_child;
mod list;
mod marker;
pub(crate) mod orphans;
mod proc_status;
mod stat;

pub use self::{
    child::{Child, Platform, Signal},
    command_line::{CommandError, CommandLine},
    exit::Exit,
    identity::{Identity, Origin, Program},
    leftovers::LeftoverProcess,
    linux::Linux,
    linux_child::LinuxChild,
    marker::{Marker, VARIABLE as MARKER_VARIABLE},
};
pub(crate) use self::{
    child::{exited, reap},
    identity::{boot_id, started_at},
    list::running,
    proc_status::{is_ending, is_suspended},
};
