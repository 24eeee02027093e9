//! Logs: one JSON object a line on stderr, where the child's own output goes as well.
//!
//! Nothing in the wrapper waits for the reader of its log. Lines go into a [`queue`] of limited size, and a thread of its own writes them. While
//! the reader does not read, as at a full pipe or a stalled journal, lines are dropped and counted.

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

/// What waits to be written. One for the process, as its stderr is.
static QUEUE: LazyLock<Queue> = LazyLock::new(|| Queue::new(LIMIT));

/// At most so many bytes wait: some thousand lines.
const LIMIT: usize = 2 * 1024 * 1024;

/// The writer calls nothing that is deep.
const STACK: usize = 128 * 1024;

/// How long the end of the process may wait until the last lines are written.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Sends this crate's events of `level` and above to stderr, and of the libraries under it only warnings and errors. A panic is logged, too.
///
/// Called a second time in one process it does nothing.
///
/// # Errors
///
/// The thread that writes cannot be started.
pub fn init(level: LevelFilter) -> io::Result<()> {
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
        .with_writer(|| Line(&QUEUE));
    // The only failure is that a subscriber is set already, by an earlier call.
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        thread::Builder::new()
            .name("log".to_owned())
            .stack_size(STACK)
            .spawn(|| QUEUE.write_all_to(write_to_stderr))?;
        // The hook that Rust sets would wait for the reader of stderr.
        panic::set_hook(Box::new(|panic| {
            let location = panic.location().map(ToString::to_string);
            error!(location, "panic: {}", panic_message(panic.payload()));
        }));
    }
    Ok(())
}

/// Waits until the lines that were logged so far are written, for a second at most: the process is about to end.
pub fn flush() {
    QUEUE.flush(FLUSH_LIMIT);
}

/// How many lines were dropped since the process was started.
pub(crate) fn dropped() -> u64 {
    QUEUE.dropped()
}

/// What a panic says of its cause.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// One event's way into the queue. The layer writes each event with one call.
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

/// Writes to the descriptor itself: the lock around [`io::stderr`] would be held for as long as the reader does not read.
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
