//! Logging: one JSON object per line on stderr, which the child's output also uses.
//!
//! The wrapper never waits for the reader of its log: a separate thread writes the lines. While stderr is blocked, for example by a full pipe
//! or a stalled journal, lines are dropped and counted.

use std::{
    any::Any,
    io, panic,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    stdio::stderr,
};
use tracing::{error, level_filters::LevelFilter, warn};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Maximum number of lines that wait for the reader. Most have some hundred bytes; the longest, with a client's texts, have 15 KB.
const WAITING_LINES: usize = 1000;

/// Maximum time to wait for the last lines before the process exits.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Lines that found no place among the waiting ones.
static OVERFLOWED: OnceLock<ErrorCounter> = OnceLock::new();

/// Lines that could not be written.
static UNWRITABLE: AtomicU64 = AtomicU64::new(0);

/// The thread that writes the log.
#[derive(Debug)]
pub struct Log(WorkerGuard);

/// Logs this crate's events from `level` on to stderr, and only warnings and errors of libraries. Panics are also logged.
pub fn init(level: LevelFilter) -> Log {
    let filter = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target(env!("CARGO_CRATE_NAME"), level)
        // h2 warns about protocol errors, which any peer can cause without limit.
        .with_target("h2", level.min(LevelFilter::ERROR));
    let queue = NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES).thread_name("log");
    let (writer, thread) = queue.finish(Stderr { reported: 0 });
    OVERFLOWED.get_or_init(|| writer.error_counter());
    let lines = fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(writer);
    tracing_subscriber::registry().with(filter).with(lines).init();
    // Rust's default hook would block while stderr is blocked.
    panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string);
        error!(location, "panic: {}", panic_message(panic.payload()));
    }));
    Log(thread)
}

impl Log {
    /// Waits at most a second until the logged lines are written. Call this before the process exits.
    pub fn flush(self) {
        let (done, is_done) = mpsc::channel();
        // The guard writes to stdout if the queue is full, and stdout can also be blocked.
        let thread = thread::Builder::new().spawn(move || {
            drop(self.0);
            done.send(())
        });
        if thread.is_ok() {
            let _is_late = is_done.recv_timeout(FLUSH_LIMIT);
        }
    }
}

/// Number of dropped lines since the start of the process.
fn dropped() -> u64 {
    let overflowed = OVERFLOWED.get().map_or(0, ErrorCounter::dropped_lines);
    overflowed as u64 + UNWRITABLE.load(Ordering::Relaxed)
}

/// The message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Writes to the descriptor directly: the lock of [`io::stderr`] would be held while stderr is blocked.
struct Stderr {
    /// Number of dropped lines that were reported in the log.
    reported: u64,
}

impl io::Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(stderr(), text) {
                Ok(written) => return Ok(written),
                Err(Errno::INTR) => {}
                // Another process that shares the pipe or terminal has made it non-blocking.
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)], None)?;
                }
                Err(errno) => {
                    UNWRITABLE.fetch_add(1, Ordering::Relaxed);
                    return Err(errno.into());
                }
            }
        }
    }

    /// Called when no more lines wait.
    fn flush(&mut self) -> io::Result<()> {
        let dropped = dropped();
        let missing = dropped - self.reported;
        if missing > 0 {
            self.reported = dropped;
            warn!("{missing} log lines were dropped, because stderr was blocked or could not be written");
        }
        Ok(())
    }
}
