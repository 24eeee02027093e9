//! A Terraform plugin framework.
//!
//! A provider is a [`Registry`] of types that implement [`Block`], [`Resource`] and [`Function`]. [`run`] is the whole `main` of its program.

mod contract;
mod problem;
mod process;
pub mod schema;
mod server;
mod wire;

pub use contract::{Block, Function, Resource};
pub use problem::{FunctionError, Problem, Problems};
pub use process::run;
pub use server::{
    Registry, Service,
    call::{Call, Operation, Private, Progress, Walk, call, warnings_of},
};
