//! A Terraform plugin framework.
//!
//! A provider is a [`Registry`] of types that implement the traits of [`schema`]. [`run`] is the whole `main` of its program.

mod problem;
mod process;
pub mod schema;
mod server;
mod wire;

pub use problem::Problem;
pub use process::run;
pub use server::{
    Registry, Service,
    call::{Call, Operation, Private, Walk, call},
};
