//! Logs: one JSON object a line on stderr, where the child's own output goes as well.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Sends this crate's events of `level` and above to stderr, and of the libraries under it only warnings and errors.
///
/// Called a second time in one process it does nothing.
pub fn init(level: LevelFilter) {
    let filter = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target(env!("CARGO_CRATE_NAME"), level)
        // It warns of what a peer does wrong, as often as the peer likes.
        .with_target("h2", level.min(LevelFilter::ERROR));
    let lines = fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(io::stderr);
    // The only failure is that a subscriber is set already, by an earlier call.
    let _set_already = tracing_subscriber::registry().with(filter).with(lines).try_init();
}
