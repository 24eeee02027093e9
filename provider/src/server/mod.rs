//! Terraform's calls: decode, find the type, call it, encode.

mod erased;
mod registry;

pub use registry::Registry;
