//! The plugin process: go-plugin's handshake, socket, certificates, log, and exit.
//!
//! Terraform starts this program with a cookie, a certificate and the supported protocol versions in the environment. The program listens on
//! a Unix socket in a private directory, prints one line with the socket and its certificate, and serves gRPC to clients of the same
//! user that have the key of the announced certificate. The parts:
//!
//! - [`launch`]: environment and arguments as settings; rejects a manual start;
//! - [`socket`], [`tls`], [`accept`]: authenticated byte streams;
//! - [`services`]: go-plugin's services;
//! - [`parent`]: detects the exit of Terraform;
//! - [`logging`]: the log in Terraform's format;
//! - [`version`] prints the version.

mod accept;
mod announce;
mod launch;
mod logging;
mod parent;
mod serve;
mod services;
mod socket;
mod tls;
mod version;

use std::{backtrace::BacktraceStatus, process::ExitCode};

use crate::{Registry, server::call};
use launch::Launch;
use serve::{ServeError, serve};

/// Runs the provider; called by `main`.
///
/// It requires the environment that Terraform sets for plugins, or `--debug`: then it prints how to attach Terraform to it, and serves
/// until SIGINT or SIGTERM. With `--version` it prints its version. Otherwise it prints an error on stderr and fails.
#[expect(clippy::print_stderr, reason = "before the log is set up, and after it ended, stderr is for people")]
pub fn run(registry: Registry) -> ExitCode {
    if version::is_requested() {
        version::print(registry.name(), &registry.process.version);
        return ExitCode::SUCCESS;
    }
    let launch = match Launch::from_process(registry.name()) {
        Ok(launch) => launch,
        Err(refusal) => {
            eprintln!("{refusal}");
            return ExitCode::FAILURE;
        }
    };
    logging::init(launch.log_level, registry.process.quiet);
    if let Some(prepare) = registry.process.at_start {
        prepare();
    }
    std::panic::set_hook(Box::new(report_panic));
    match start(registry, launch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{:#}", anyhow::Error::new(error));
            ExitCode::FAILURE
        }
    }
}

fn start(registry: Registry, launch: Launch) -> Result<(), ServeError> {
    // Calls wait for the network: a few threads are enough, and start faster.
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    let result = runtime.block_on(serve(registry, launch));
    // Running calls have had their grace period.
    runtime.shutdown_background();
    result
}

/// Logs a panic, and adds its location to the diagnostic of its call.
fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = std::backtrace::Backtrace::capture();
    let text = call::panic_text(info.payload());
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(location = place, backtrace = %backtrace, "panic: {text}");
    } else {
        tracing::error!(location = place, "panic: {text}");
    }
    // Fails only outside of a call.
    let _ = call::CALL.try_with(|call| call.note(|notes| notes.panicked_at = Some(place)));
}
