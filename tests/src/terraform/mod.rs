//! Terraform (or OpenTofu) as a peer: the real program with the built providers, in a workspace that knows nothing of this machine's
//! settings.
//!
//! - [`Workspace`]: a folder with a configuration, a home and a plugin folder of its own; runs commands to their end ([`Run`]).
//! - [`Session`]: a command in a terminal of its own, for Ctrl-C, signals and sudden death.
//! - [`Event`]: what `-json` prints, typed. [`State`]: the state file, read.
//! - [`Plugin`]: a provider's process without Terraform, and [`Client`], which speaks its protocol to it.

mod binaries;
mod client;
mod core;
mod events;
mod plugin;
mod processes;
mod session;
mod state;
mod workspace;

pub use binaries::{MissingBinary, built, on_path, terraform};
pub use client::{Client, ClientIdentity, ConnectError};
pub use core::{Core, Product, core};
pub use events::{Event, Hook, Severity};
pub use plugin::{Handshake, Plugin};
pub use processes::Processes;
pub use session::{Ended, Session};
pub use state::{Object, State};
pub use workspace::{Run, Workspace};
