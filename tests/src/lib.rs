//! The harness of the end-to-end tests and the demo: real peers, and stand-ins for peers that are not available.

pub mod bench;
pub mod cloud_init;
pub mod dashboard;
pub mod debian;
pub mod dist;
pub mod dynamic;
pub mod lab;
pub mod lab_provider;
pub mod link;
pub mod pods;
pub mod poll;
pub mod programs;
pub mod prometheus;
pub mod provider_client;
pub mod rollout;
pub mod script;
#[cfg(test)]
pub mod simulation;
pub mod ssh_server;
pub mod sshd;
pub mod terraform;
pub mod traces;
