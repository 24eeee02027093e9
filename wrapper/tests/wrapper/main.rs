//! The wrapper as its users meet it: the real program around real children, seen through upstream's API.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test: failing is what it is for"
)]

mod access;
mod blocked;
mod callback;
mod contract;
mod control;
mod documented;
mod handover;
mod health_of_child;
mod hostile;
mod ladder;
mod last_lines;
mod life;
mod operator;
mod operator_errors;
mod other_clients;
mod own;
mod prometheus;
mod race;
mod reflection;
mod remains;
mod revision;
mod signals;
mod sockets;
mod support;
mod survival;
mod systemd;
mod web;
