//! What the project promises, one file per promise. One binary, so that all of them run side by side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod boot_verify;
mod demo;
mod drain_options;
mod example;
mod faults;
mod health_levels;
mod health_reasons;
mod host_reset;
mod hosts_guide;
mod interruptions;
mod lab_host;
mod many_managers;
mod network_cut;
mod no_secrets;
mod package;
mod plan_guard;
mod plugin_access;
mod plugin_calls;
mod plugin_failures;
mod plugin_start;
mod plugin_stop;
mod plugin_values;
mod probes;
mod provider_block;
mod rollout;
mod runner_stand_in;
mod russh_log;
mod shapes;
mod strategies;
mod systemd_log;
mod systemd_socket;
mod systemd_stop;
mod systemd_upgrade;
mod upstream_wrapper;
mod wrapper_survival;
