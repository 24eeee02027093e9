//! The wrapper binary with real children, observed through its APIs.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test: failing is what it is for"
)]

mod aborted_drain;
mod access;
mod blocked_io;
mod callback;
mod callback_receiver;
mod cleanup_limit;
mod contract;
mod control;
mod dial_stdio;
mod documented;
mod foreign_listeners;
mod health_freshness;
mod health_levels;
mod hostile_users;
mod killed_wrapper;
mod launchers;
mod leftover_processes;
mod lifecycle;
mod on_exit;
mod operator;
mod operator_errors;
mod other_clients;
mod prometheus;
mod reference;
mod request_gap;
mod resource_limits;
mod signals;
mod sockets;
mod state_disk;
mod state_file;
mod stop_races;
mod support;
mod systemd;
mod web;
mod wrapper_v1;
