//! Terraform (or OpenTofu) as a peer: the real program with the built providers, in a workspace without this machine's
//! settings.
//!
//! - [`Workspace`]: a directory with a configuration, a home and a plugin directory; runs commands ([`Run`]).
//! - [`Session`]: a command in a separate terminal, for Ctrl-C and signals.
//! - [`Event`]: the typed `-json` output. [`State`]: the parsed state file.
//! - [`Backend`]: a remote state.
//! - [`Plugin`]: a provider's process without Terraform, and [`Client`], a client of its protocol.

mod backend;
mod binaries;
mod client;
mod core;
mod events;
mod plugin;
mod processes;
mod session;
mod state;
mod workspace;

pub use backend::Backend;
pub use binaries::{MissingBinary, built, on_path, terraform};
pub use client::{Client, ClientIdentity, ConnectError};
pub use core::{Core, Product, core, need};
pub use events::{Event, Hook, Severity};
pub use plugin::{Handshake, Plugin};
pub use processes::Processes;
pub use session::{Ended, Session};
pub use state::{Object, State};
pub use workspace::{Run, Workspace};
