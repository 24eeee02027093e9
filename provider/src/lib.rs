//! The provider: zero-downtime updates of GitLab Runner managers inside `terraform apply`.
//!
//! The layers, each importing only what stands below it: [`plugin`] (how Terraform starts and stops us) and its `server` (Terraform's calls),
//! the resources and data sources, and below them what reaches the hosts. [`schema`] holds what resources are made of, [`call`] what a
//! call knows beyond its arguments.

pub mod args;
#[expect(dead_code, reason = "the calls come with the next change")]
pub mod call;
pub mod client;
pub mod explain;
pub mod fleet;
pub mod plugin;
pub mod schema;
#[expect(dead_code, reason = "the calls come with the next change")]
mod server;
pub mod transport;
#[expect(dead_code, unused_imports, reason = "the calls come with the next change")]
mod wire;

pub use server::Registry;
