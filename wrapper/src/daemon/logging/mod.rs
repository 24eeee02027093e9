//! Logging: one JSON object per line on stderr, which the child's output also uses.
//!
//! The wrapper never waits for the reader of its log. Lines go into a [`queue`] of limited size, and a separate thread writes them. While
//! stderr is blocked, for example by a full pipe or a stalled journal, lines are dropped and counted.

mod queue;

use std::{any::Any, io, panic, sync::LazyLock, thread, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    stdio::stderr,
};
use tracing::{error, level_filters::LevelFilter};
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use self::queue::Queue;
use crate::supervise::log_key as key;

/// Lines to be written. One queue for the process, because there is one stderr.
static QUEUE: LazyLock<Queue> = LazyLock::new(|| Queue::new(QUEUE_LIMIT));

/// Maximum size of the queue in bytes: some thousand lines.
const QUEUE_LIMIT: usize = 2 * 1024 * 1024;

/// The writer thread has a shallow call stack.
const STACK_SIZE: usize = 128 * 1024;

/// Maximum time to wait for the last lines before the process exits.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Logs this crate's events from `level` on to stderr, and only warnings and errors of libraries. Panics are logged, too.
///
/// Further calls in one process have no effect.
pub fn init(level: LevelFilter) -> io::Result<()> {
    let filter = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target(env!("CARGO_CRATE_NAME"), level)
        // h2 warns about protocol errors, which any peer can cause without limit.
        .with_target("h2", level.min(LevelFilter::ERROR));
    let lines = fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(|| Line(&QUEUE));
    // It only fails if an earlier call has set a subscriber.
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        thread::Builder::new()
            .name("log".to_owned())
            .stack_size(STACK_SIZE)
            .spawn(|| QUEUE.write_all_to(write_to_stderr))?;
        // Rust's default hook would block while stderr is blocked.
        panic::set_hook(Box::new(|panic| {
            let location = panic.location().map(ToString::to_string);
            error!({ key::LOCATION } = location, "panic: {}", panic_message(panic.payload()));
        }));
    }
    Ok(())
}

/// Waits at most a second until the logged lines are written. Call this before the process exits.
pub fn flush() {
    QUEUE.flush(FLUSH_LIMIT);
}

/// Number of dropped lines since the start of the process.
pub(crate) fn dropped() -> u64 {
    QUEUE.dropped()
}

/// The message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Passes one event to the queue. The layer writes each event with one call.
struct Line(&'static Queue);

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to the descriptor directly: the lock of [`io::stderr`] would be held while stderr is blocked.
fn write_to_stderr(mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match rustix::io::write(stderr(), line) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => line = line.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another process that shares the pipe or terminal has made it non-blocking.
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)], None)?;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
