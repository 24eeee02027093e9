//! The command line: arguments, and the commands that connect to a running wrapper.

pub mod args;
mod client;
pub mod commands;
mod connect;
mod dial_stdio;
mod error;
pub mod run_flags;
mod stdout;
mod unit_commands;
mod view;
mod wait;

pub use self::error::CommandError;
